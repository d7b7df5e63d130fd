"""Costs on a measured machine: what its tables say. Energy was not measured and is not told."""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.hardware.cost import Component, Cost, split
from hetspec.hardware.cost_as import RealShapes
from hetspec.hardware.flash import ReadAhead, stream
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.measured import Measured
from hetspec.hardware.platform import Role
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork

_BUFFER_LAYERS = 1


class MeasuredCosts:
    """real: the models that run. Raises ValueError unless they are those that were measured."""

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

    def verify(self, work: VerifyWork, ahead: ReadAhead, taken: object) -> Cost:
        """A layer takes its share of a pass of as many rows as reach it."""
        kv, layers = _mean_kv(work.items), self._layers
        passes = {rows: self._measured.verify.ns(rows, kv) for rows in set(work.rows_by_layer)}
        parts = [
            passes[rows] * (layer + 1) // layers - passes[rows] * layer // layers
            for layer, rows in enumerate(work.rows_by_layer)
        ]
        ledger = self._open()
        ledger.hold(Component.COMPUTE, sum(parts))
        resident = layers - min(self._measured.streamed_layers, layers)
        reads = [self._measured.layer_read_ns if layer >= resident else 0 for layer in range(len(parts))]
        flow = stream(reads, parts, _BUFFER_LAYERS, 0)
        ledger.hold(Component.FLASH, flow.wait_ns)
        return ledger.close(flow.read_ns, flow.ready_ns, work.rebuilt)

    def draft(self, work: DraftWork, taken: object) -> Cost:
        ledger = self._open()
        if work.step_rows:
            steps, head = self._measured.draft_step, self._measured.draft_head
            assert steps is not None
            assert head is not None
            kv = _mean_kv(work.items)
            heads = split(work.head_rows, [1] * len(work.step_rows))
            ledger.hold(Component.COMPUTE, sum(steps.ns(rows, kv) for rows in work.step_rows))
            ledger.hold(Component.COMPUTE, sum(head.ns(rows) for rows in heads if rows))
        return ledger.close()

    def walk(self, work: WalkWork, taken: object) -> Cost:
        ledger, head = self._open(), self._measured.head
        if work.head_rows:
            alone = work.head_rows * head.ns(1) if work.lazy else head.ns(work.head_rows)
            ledger.hold(Component.COMPUTE, alone)
        return ledger.close()

    def device_of(self, role: Role) -> str:
        return self._device

    def padded_rows(self, role: Role, rows: int) -> int:
        return rows

    def static_uw(self) -> dict[str, int]:
        return {self._device: 0}

    def channel_bandwidth(self) -> dict[str, int]:
        return {}

    def _open(self) -> Ledger:
        ledger = Ledger(self._device)
        ledger.hold(Component.LAUNCH, self._measured.task_ns)
        return ledger


def _mean_kv(items: Sequence[ItemRows]) -> int:
    lengths = [length for item in items for length in item.kv_len]
    return round(sum(lengths) / len(lengths))
