"""Costs on a measured machine: what its tables say. Energy was not measured and is not told."""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.hardware.cost import Component, Cost
from hetspec.hardware.cost_as import RealShapes
from hetspec.hardware.flash import ReadAhead, stream
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.measured import Measured
from hetspec.hardware.platform import Role
from hetspec.hardware.work import ROWS_TOGETHER, DraftWork, ItemRows, VerifyWork, WalkWork

_BUFFER_LAYERS = 1


class MeasuredCosts:
    """real: the models that run. Raises ValueError unless they are those that were measured."""

    pre_verification: str | None = None

    def __init__(self, name: str, device: str, measured: Measured, real: RealShapes) -> None:
        draft = real.draft.name if real.draft else None
        if (real.target.name, draft) != (measured.target, measured.draft):
            raise ValueError(
                f"hardware {name!r} was measured with {measured.target} and {measured.draft or 'no draft model'}, "
                f"{real.target.name} and {draft or 'no draft model'} run: calibrate again"
            )
        self._device = device
        self._measured = measured
        self._layers = real.target.n_layers
        self.longest_kv = measured.longest_kv

    def verify(self, work: VerifyWork, ahead: ReadAhead, taken: object) -> Cost:
        """A layer takes its share of a pass of as many rows as reach it."""
        kv, layers = _mean_kv(work.items), self._layers
        passes = {rows: self._measured.verify.ns(rows, kv) for rows in set(work.rows_by_layer)}
        parts = [
            passes[rows] * (layer + 1) // layers - passes[rows] * layer // layers
            for layer, rows in enumerate(work.rows_by_layer)
        ]
        resident = layers - min(self._measured.streamed_layers, layers)
        reads = [self._measured.layer_read_ns if layer >= resident else 0 for layer in range(len(parts))]
        flow = stream(reads, parts, _BUFFER_LAYERS, 0)
        ledger = self._open()
        for part, step in zip(parts, flow.steps, strict=True):
            ledger.hold(Component.COMPUTE, part)
            ledger.hold(Component.FLASH, step.wait_ns)
            ledger.read(step.begun * self._measured.layer_read_ns)
            ledger.leave(step.left_ns)
            ledger.end_part()
        return ledger.close(flow.ready_ns, is_rebuild=work.rebuilt)

    def draft(self, work: DraftWork, taken: object) -> Cost:
        """Each session has one head row of what was read; all others are of the steps that follow."""
        ledger, read = self._open(), self._measured.draft_read
        if work.step_rows:
            assert read is not None
            kv, reads = _mean_kv(work.items), _reads(work)
            for rows in work.step_rows[:reads]:
                ledger.hold(Component.COMPUTE, read.ns(rows, kv))
                ledger.end_part()
            for rows in work.step_rows[reads:]:
                ledger.hold(Component.COMPUTE, self._step_ns(rows, kv))
                ledger.end_part()
        return ledger.close()

    def step(self, work: DraftWork, taken: object) -> Cost:
        ledger = Ledger(self._device)
        for rows in work.step_rows:
            ledger.hold(Component.COMPUTE, self._step_ns(rows, _mean_kv(work.items)))
        return ledger.close()

    def walk(self, work: WalkWork, taken: object) -> Cost:
        ledger, head = self._open(), self._measured.head
        if work.head_rows:
            passes, rest = divmod(work.head_rows, ROWS_TOGETHER) if work.lazy else (0, work.head_rows)
            rows = [ROWS_TOGETHER] * passes + [rest] * bool(rest)
            ledger.hold(Component.COMPUTE, sum(map(head.ns, rows)))
        return ledger.close()

    def device_of(self, role: Role) -> str:
        return self._device

    def is_preemptible(self, device: str) -> bool:
        return True

    def padded_rows(self, role: Role, rows: int) -> int:
        return rows

    def static_uw(self) -> dict[str, int]:
        return {self._device: 0}

    def channel_bandwidth(self) -> dict[str, int]:
        return {}

    def _step_ns(self, rows: int, kv: int) -> int:
        assert self._measured.draft_step is not None
        return self._measured.draft_step.ns(rows, kv)

    def _open(self) -> Ledger:
        ledger = Ledger(self._device)
        ledger.hold(Component.LAUNCH, self._measured.task_ns)
        return ledger


def _reads(work: DraftWork) -> int:
    """How many of the steps read: those before the last ones, whose rows are all head rows. A step that reads for
    several sessions has a row for each of them at least, and so more rows than head rows are left then but one."""
    left, steps = work.head_rows - 1, len(work.step_rows)
    while steps > 1 and work.step_rows[steps - 1] <= left:
        left -= work.step_rows[steps - 1]
        steps -= 1
    return steps


def _mean_kv(items: Sequence[ItemRows]) -> int:
    lengths = [length for item in items for length in item.kv_len]
    return round(sum(lengths) / len(lengths))
