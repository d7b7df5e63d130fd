"""What a calibration found, as the command line prints it: each table with the shapes that it was measured at."""

from __future__ import annotations

from collections.abc import Iterator

from hetspec.hardware.measured import KvTable, Measured

Table = list[tuple[str, ...]]


def tables(told: Measured) -> Iterator[Table]:
    """Milliseconds."""
    for name, table in (("pass", told.verify), ("draft read", told.draft_read), ("draft step", told.draft_step)):
        if table is not None:
            yield _by_positions(name, table)
    yield [("head, rows", "ms"), *((str(rows), _ms(ms)) for rows, ms in zip(told.head.rows, told.head.ms, strict=True))]
    yield [("", "ms"), ("layer read", _ms(told.layer_read_ms)), ("task beside its work", _ms(told.task_ms))]


def _by_positions(name: str, table: KvTable) -> Table:
    heads = (f"{name}, rows", *(f"ms at {at} position{'s' if at > 1 else ''}" for at in table.kv))
    return [heads, *((str(rows), *map(_ms, line)) for rows, line in zip(table.rows, table.ms, strict=True))]


def _ms(value: float) -> str:
    return f"{value:.2f}"
