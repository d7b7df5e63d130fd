"""What `hetspec bench ahasd` tells of a target that streams from flash: tables, a CSV file and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from laboratory import flash_policies as known
from laboratory.bars import Bar, Panel
from laboratory.figures import Figures, StudyReport, csv_by_policy
from laboratory.outcome import Outcome
from laboratory.tables import Table, not_possible, percent

_OVER = (known.PLAIN, known.LEVER, known.AHASD)
_HEAD = (
    "", "ms/token", *(f"over {name}" for name in _OVER), "tokens/round", "survived", "dropped", "flash", "NPU idle",
    "PIM idle", "mJ/token",
)  # fmt: skip
_DEVICES = ("npu", "pim")


@dataclass(frozen=True, slots=True)
class FlashReport(StudyReport):
    """excluded: why hardware and models do not go together, by pair and policy."""

    excluded: Mapping[tuple[str, str], str]

    def tables(self) -> Iterator[tuple[str, Table]]:
        """What is "over" a mode is over it on the same hardware, flash resting or not."""
        yield "full over", self._full()
        for figures in self.all:
            yield figures.pair, [_HEAD, *(_row(figures, name) for name in figures.outcomes)]
        yield from not_possible(self.excluded)

    def csv(self) -> str:
        return csv_by_policy(self.all, _COLUMNS, _cells)

    def panels(self) -> list[Panel]:
        return [
            Panel(figures.pair, [Bar(name, figures.speed(name, known.PLAIN)) for name in figures.outcomes])
            for figures in self.all
        ]

    def _full(self) -> Table:
        rows = [
            (f"{figures.pair}: {name}", *(f"{figures.speed(name, over):.2f}x" for over in _beside(name)))
            for figures in self.all
            for full in (known.FULL, known.FULL_OUTCOMES)
            for name in (full, known.rested(full))
            if name in figures.outcomes
        ]
        return [("", *_OVER), *rows]


def _beside(name: str) -> tuple[str, ...]:
    """Plain decoding, lever and ahasd on the same hardware."""
    return tuple(known.rested(over) if known.rests(name) else over for over in _OVER)


def _row(figures: Figures, name: str) -> tuple[str, ...]:
    one = figures.outcomes[name]
    return (
        name,
        f"{one.decode_ns / 1e6:.1f}",
        *(f"{figures.speed(name, over):.2f}x" for over in _beside(name)),
        f"{one.accept_length:.2f}",
        percent(one.survived, one.survived + one.lost),
        percent(one.dropped, one.drafted),
        f"{one.io_share:.0%}",
        *(f"{one.idle_share(device):.0%}" for device in _DEVICES),
        f"{one.token_pj / 1e9:.0f}",
    )


_COLUMNS = (
    "answer_tokens", "decoded_tokens", "rounds", "nodes_verified", "nodes_accepted", "drafted_ahead", "dropped",
    "survived", "lost", "ms_per_token", "tokens_per_round", "flash_share", "npu_idle", "pim_idle", "mj_per_token",
    *(f"over_{name}" for name in _OVER),
)  # fmt: skip


def _cells(figures: Figures, name: str, one: Outcome) -> tuple[str, ...]:
    counts = (one.tokens, one.decoded, one.rounds, one.nodes, one.accepted, one.drafted, one.dropped, one.survived)
    ratios = (
        one.decode_ns / 1e6, one.accept_length, one.io_share, *map(one.idle_share, _DEVICES), one.token_pj / 1e9,
        *(figures.speed(name, over) for over in _beside(name)),
    )  # fmt: skip
    return (*map(str, (*counts, one.lost)), *(f"{ratio:.3f}" for ratio in ratios))
