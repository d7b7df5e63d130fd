"""The timeline on one screen: a line of letters a lane, and what each kind of task came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from hetspec_client.observe.trace import Axis, Block
from hetspec_client.observe.trace_colours import KINDS, look

_IDLE, _MARK = "\N{MIDDLE DOT}", "^"
Row = tuple[str, ...]
HEADS = ("", "tasks", "ms", "of the time", "waited ms", "cut", "dropped", "failed")


def lane_lines(axis: Axis, width: int) -> Iterator[Text]:
    """width: letters in all. Each letter of a lane is the kind that holds most of its time."""
    labels = max(map(len, axis.lanes), default=0)
    letters = max(10, width - labels - len("  100%") - 1)
    scale = letters / (axis.us or 1.0)
    for lane in axis.lanes:
        share = axis.busy_us(lane) / (axis.us or 1.0)
        kinds = _kinds([block for block in axis.blocks if block.lane == lane], letters, scale)
        yield Text.assemble(f"{lane:<{labels}} ", *map(_letter, kinds), f" {share:>5.0%}")
        marks = {min(letters - 1, int(mark.at_us * scale)) for mark in axis.marks if mark.lane == lane}
        if marks:
            yield Text(" " * (labels + 1) + "".join(_MARK if i in marks else " " for i in range(letters)), style="red")
    end = f"{axis.us / 1e3:.1f} ms"
    yield Text(" " * (labels + 1) + "0" + end.rjust(letters - 1), style="dim")


def legend(axis: Axis) -> Text:
    present = {block.kind for block in axis.blocks}
    parts = [part for kind in KINDS if kind in present for part in (_letter(kind), f" {kind}   ")]
    marks = (_MARK, " cut, dropped or switched") if axis.marks else ()
    return Text.assemble(*parts, *marks)


def rows(axis: Axis) -> list[Row]:
    """Of each kind. Shares are of the time from the request's arrival to its end."""
    present = {block.kind for block in axis.blocks}
    return [_row(kind, [b for b in axis.blocks if b.kind == kind], axis.us) for kind in KINDS if kind in present]


def _row(kind: str, blocks: Sequence[Block], us: float) -> Row:
    spent_us = sum(block.us for block in blocks)
    waited_ns = sum(sum(block.args.get("waited_ns", ())) for block in blocks)
    outcomes = Counter(outcome for block in blocks for outcome in block.args.get("outcome", ()))
    counted = (str(outcomes[outcome] or "") for outcome in ("cut", "dropped", "failed"))
    return (
        kind,
        str(len(blocks)),
        f"{spent_us / 1e3:.3f}",
        f"{spent_us / us:.1%}" if us else "",
        f"{waited_ns / 1e6:.3f}",
        *counted,
    )


def _kinds(blocks: Sequence[Block], letters: int, scale: float) -> list[str | None]:
    """Of each letter's time, what most of it went to; None where that is idling."""
    held = [Counter[str]() for _ in range(letters)]
    for block in blocks:
        begin, end = block.begin_us * scale, block.end_us * scale
        for place in range(int(begin), min(letters, int(end) + 1)):
            held[place][block.kind] += min(end, place + 1) - max(begin, place)  # type: ignore[assignment]
    most = (counter.most_common(1) for counter in held)
    busy = (sum(counter.values()) for counter in held)
    return [found[0][0] if found and total >= 0.5 else None for found, total in zip(most, busy, strict=True)]


def _letter(kind: str | None) -> tuple[str, str]:
    return (_IDLE, "dim") if kind is None else (look(kind).letter, f"bold white on {look(kind).colour}")
