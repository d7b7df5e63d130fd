"""A request's tokens in every mode, beside what plain decoding says to it alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from tests.system import Answer, Ask, Setup, System

SPECULATIVE = ("chain", "tree", "lever", "ahasd", "full")


class PlainTokens:
    """What plain decoding says to each request alone, whole prompts in one pass, everything in memory."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str, Ask], list[int]] = {}

    async def of(self, setup: Setup, asks: Sequence[Ask], running: System | None = None) -> list[list[int]]:
        """running: of this setup; it is asked itself where it is as plain."""
        keys = [(setup.target, setup.precision, _as_plain(ask)) for ask in asks]
        if not all(key in self._known for key in keys):
            bare = Setup(setup.target, setup.cache_dir, precision=setup.precision, max_context=setup.max_context)
            async with nullcontext(running) if running and setup == bare else System(bare) as system:
                for key in keys:
                    if key not in self._known:
                        self._known[key] = (await system.generate(key[2])).tokens
        return [self._known[key] for key in keys]


def _as_plain(ask: Ask) -> Ask:
    return replace(ask, mode="plain", max_nodes=1, max_depth=1)


@dataclass(frozen=True)
class Case:
    """How a system differs from the plain one. alone: each request by itself besides with 7 neighbours."""

    draft: str = "none"
    dram_budget: str = "0"
    chunk_tokens: int = 256
    modes: tuple[str, ...] = ("plain", *SPECULATIVE)
    alone: bool = True

    def setup(self, target: Path, cache_dir: Path, precision: str, drafts: dict[str, Path | None]) -> Setup:
        return Setup(
            target,
            cache_dir,
            draft=drafts[self.draft],
            precision=precision,
            dram_budget=self.dram_budget,
            chunk_tokens=self.chunk_tokens,
            max_context=4096,
        )


def with_modes(asks: Sequence[Ask], modes: Sequence[str]) -> list[Ask]:
    return [replace(ask, mode=mode) for ask in asks for mode in modes]


async def check(case: Case, setup: Setup, asks: Sequence[Ask], plain: PlainTokens) -> list[Answer]:
    """Alone where the case says so, and eight at a time; returns the speculative answers."""
    asks = with_modes(asks, case.modes)
    answers: list[Answer] = []
    async with System(setup) as system:
        expected = await plain.of(setup, asks, system)
        for at_once in (1, 8) if case.alone else (8,):
            found = await system.generate_all(asks, at_once)
            assert [answer.tokens for answer in found] == expected, f"{at_once} at once"
            answers += found
        await system.until_nothing_is_held()
    assert sum(map(len, expected)) > len(asks) * asks[0].max_tokens // 2, "too few tokens to prove anything"
    return [answer for answer in answers if answer.statistics.mode != "plain"]


def check_both_outcomes(case: Case, answers: Sequence[Answer]) -> None:
    """Where nothing is accepted, or nothing refused, nothing is proved: the drafts must have met with both."""
    accepted = sum(answer.statistics.accepted for answer in answers)
    verified = sum(answer.statistics.verified for answer in answers)
    assert verified > accepted
    assert accepted > 0 or case.draft == "random"
