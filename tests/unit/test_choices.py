from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.choices import SideBySide
from orchestrator.engine.request import Emission


class Scripted:
    """Emits pieces, each after so many turns of the event loop; an exception is raised."""

    def __init__(self, steps: Sequence[tuple[int, str | Exception]]) -> None:
        self._steps = list(steps)
        self.asked = 0
        self.running = False
        self.closed = False

    async def next(self) -> Emission:
        assert not self.running
        assert not self.closed
        self.asked += 1
        self.running = True
        try:
            delay, piece = self._steps.pop(0)
            for _ in range(delay):
                await asyncio.sleep(0)
            if isinstance(piece, Exception):
                raise piece
            return Emission(piece, (), None if self._steps else "stop")
        finally:
            self.running = False

    async def aclose(self) -> None:
        assert not self.running
        self.closed = True


async def read(choices: SideBySide) -> list[tuple[int, str]]:
    return [(index, emission.text) async for index, emission in choices]


scripts = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.text("ab", max_size=2)), min_size=1, max_size=6), max_size=5
)


@given(scripts)
def test_every_choice_is_told_whole_and_in_its_order(scripts: list[list[tuple[int, str]]]) -> None:
    told = asyncio.run(read(SideBySide([Scripted(script) for script in scripts])))
    for index, script in enumerate(scripts):
        assert [text for told_index, text in told if told_index == index] == [text for _, text in script]


async def test_choices_are_computed_side_by_side() -> None:
    slow, quick = Scripted([(50, "slow")]), Scripted([(1, "q"), (1, "u"), (1, "i")])
    assert await read(SideBySide([slow, quick])) == [(1, "q"), (1, "u"), (1, "i"), (0, "slow")]


async def test_a_choice_is_one_emission_ahead_of_the_reader_at_most() -> None:
    sources = [Scripted([(0, "x")] * 9) for _ in range(3)]
    choices = SideBySide(sources)
    told = [0, 0, 0]
    for _ in range(12):
        index, _ = await anext(choices)
        told[index] += 1
        await asyncio.sleep(0)
        assert all(source.asked <= count + 1 for source, count in zip(sources, told, strict=True))
    await choices.aclose()


async def test_a_choice_that_fails_fails_them_all_and_the_others_stop() -> None:
    sources = [Scripted([(1000, "x")]), Scripted([(2, ValueError("broken"))]), Scripted([(0, "y")] * 99)]
    choices = SideBySide(sources)
    with pytest.raises(ValueError, match="broken"):
        await read(choices)
    await choices.aclose()
    assert all(source.closed and not source.running for source in sources)


async def test_left_early_nothing_runs_on() -> None:
    sources = [Scripted([(0, "x"), (1000, "x")]), Scripted([(1000, "x")])]
    choices = SideBySide(sources)
    await anext(choices)
    reading = asyncio.create_task(anext(choices))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert any(source.running for source in sources)
    await choices.aclose()
    assert not any(source.running for source in sources)
