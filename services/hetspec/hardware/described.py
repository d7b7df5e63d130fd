"""Costs on described hardware: rooflines, graphs of fixed shapes, layers that stream from flash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hetspec.hardware.cost import Component, Cost, split
from hetspec.hardware.cost_as import PricedModel, RealShapes
from hetspec.hardware.flash import FlashRates, Flow, ReadAhead, resident_layers, stream, stream_serially
from hetspec.hardware.ledger import Ledger, Meter
from hetspec.hardware.platform import Device, Memory, Role
from hetspec.hardware.profile import FLASH, Described
from hetspec.hardware.rooflines import Demand, Roof, bucket_runs
from hetspec.hardware.units import time_ns
from hetspec.hardware.work import DraftWork, ItemRows, VerifyWork, WalkWork

Taken = Mapping[str, Fraction]
_FP16_BYTES = 2
_NOTHING = Fraction(0)
_FAIR = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Attended:
    """Of a pass: rows, the positions that all rows attend to, and those that its sessions hold between them."""

    rows: int
    positions: int
    held: int

    @classmethod
    def of(cls, items: Sequence[ItemRows]) -> Attended:
        lengths = [item.kv_len for item in items if item.kv_len]
        return cls(sum(map(len, lengths)), sum(map(sum, lengths)), sum(map(max, lengths)))


class DescribedCosts:
    """target, draft: as which the work is priced; draft is none where lookup alone drafts."""

    def __init__(self, profile: Described, target: PricedModel, draft: PricedModel | None, real: RealShapes) -> None:
        self._profile = profile
        self._target = target
        self._draft = draft
        self._real_layers = real.target.n_layers
        flash = profile.flash
        self._flash = FlashRates.of(flash) if flash else None
        budget = flash.budget.base if flash else target.shape.n_layers * target.layer_bytes
        self.resident = resident_layers(budget, target.layer_bytes, target.n_layers)

    def verify(self, work: VerifyWork, ahead: ReadAhead, taken: Taken) -> Cost:
        ledger, roof = self._open(Role.VERIFIER, self._target, taken)
        attended, buckets = Attended.of(work.items), self._buckets(Role.VERIFIER)
        demands = [self._layer(self._target, rows, attended, buckets) for rows in self._rows_by_layer(work)]
        for demand, layers in Counter(demands).items():
            roof.enter(ledger, demand, layers)
        graphs = _graphs(demands, self.resident)
        roof.launch_graphs(ledger, sum(graphs))
        busy = [runs * roof.launch_ns + roof.busy_ns(demand) for runs, demand in zip(graphs, demands, strict=True)]
        flow = self._stream(ledger, busy, ahead)
        return ledger.close(flow.read_ns, flow.ready_ns, work.rebuilt)

    def draft(self, work: DraftWork, taken: Taken) -> Cost:
        """A step's rows go through the draft's layers; head rows are spread over the steps as evenly as they can be."""
        if not work.step_rows:
            return Ledger(self.device_of(Role.DRAFTER)).close()
        assert self._draft is not None
        model, buckets = self._draft, self._buckets(Role.DRAFTER)
        ledger, roof = self._open(Role.DRAFTER, model, taken)
        if model.mix_weights:
            self._hand_over(ledger, work.step_rows[0] * model.shape.hidden, (Role.VERIFIER, Role.DRAFTER), taken)
        attended = Attended.of(work.items)
        steps = len(work.step_rows)
        for rows, head_rows in zip(work.step_rows, split(work.head_rows, [1] * steps), strict=True):
            layer = self._layer(model, rows, attended, buckets)
            roof.launch_graphs(ledger, layer.runs)
            roof.enter(ledger, layer, model.n_layers)
            if model.mix_weights:
                roof.enter(ledger, _matrix(model, model.mix_weights, rows, buckets))
            if head_rows:
                roof.enter(ledger, _matrix(model, model.head_weights, head_rows, buckets))
        return ledger.close()

    def walk(self, work: WalkWork, taken: Taken) -> Cost:
        """Lazily: the sampler gets the hidden rows and takes one after another through the head. At once: the
        verifier's device does, padded to its bucket, and hands the logits over."""
        role = Role.SAMPLER if work.lazy else Role.VERIFIER
        ledger, roof = self._open(role, self._target, taken)
        buckets, between = self._buckets(role), (Role.VERIFIER, Role.SAMPLER)
        if work.lazy:
            self._hand_over(ledger, work.rows * self._target.shape.hidden, between, taken)
            one = _matrix(self._target, self._target.head_weights, 1, buckets)
            roof.launch_graphs(ledger, work.head_rows)
            roof.enter(ledger, one, work.head_rows)
        elif work.head_rows:
            head = _matrix(self._target, self._target.head_weights, work.head_rows, buckets)
            roof.launch_graphs(ledger, head.runs)
            roof.enter(ledger, head)
            self._hand_over(ledger, work.head_rows * self._target.head_rows, between, taken)
        return ledger.close()

    def device_of(self, role: Role) -> str:
        return self._profile.placement.device_of(role)

    def padded_rows(self, role: Role, rows: int) -> int:
        return bucket_runs(rows, self._buckets(role))[1]

    def static_uw(self) -> dict[str, int]:
        """Power of everything that there is, whether it works or not."""
        powers = {name: device.static_power.base for name, device in self._profile.devices.items()}
        powers |= {name: memory.static_power.base for name, memory in self._profile.memories.items()}
        return powers | ({FLASH: self._profile.flash.static_power.base} if self._profile.flash else {})

    def channel_bandwidth(self) -> dict[str, int]:
        return {name: memory.bandwidth.base for name, memory in self._profile.memories.items()}

    def _device(self, role: Role) -> tuple[str, Device]:
        name = self.device_of(role)
        return name, self._profile.devices[name]

    def _buckets(self, role: Role) -> list[int] | None:
        buckets = self._device(role)[1].buckets
        return buckets.rows if buckets else None

    def _open(self, role: Role, model: PricedModel, taken: Taken) -> tuple[Ledger, Roof]:
        name, device = self._device(role)
        memory = self._profile.memories[device.memory]
        operand = device.operand_of(model.datatype)
        assert operand is not None  # checked when pricing began
        attention = device.attention or operand  # a sampler alone attends to nothing
        weights, attending = device.arithmetic[operand], device.arithmetic[attention]
        left = _left(memory, taken.get(device.memory, _NOTHING))
        roof = Roof(
            Meter(Component.COMPUTE, name, f"{operand} products", "op", device.rate_of(operand), weights.energy.base),
            Meter(Component.COMPUTE, name, "attention", "op", device.rate_of(attention), attending.energy.base),
            Meter(
                Component.MEMORY, device.memory, "weights, keys and values", "B",
                min(device.bandwidth.base, left), memory.energy.base,
            ),
            Meter(Component.LAUNCH, name, "graphs", "graph", 0, 0),
            device.launch.base,
        )  # fmt: skip
        return Ledger(name), roof

    def _rows_by_layer(self, work: VerifyWork) -> list[int]:
        """Of the priced model's layers: those of the real layer at the same fraction of the depth. A pass that was cut
        ends there, too."""
        real, priced = self._real_layers, self._target.n_layers
        at = (layer * real // priced for layer in range(priced))
        return [work.rows_by_layer[layer] for layer in at if layer < len(work.rows_by_layer)]

    def _layer(self, model: PricedModel, rows: int, attended: Attended, buckets: list[int] | None) -> Demand:
        """Padding rows attend as the others do on average; what they attend to is written for them, too."""
        runs, padded = bucket_runs(rows, buckets)
        positions = attended.positions * padded // attended.rows
        return Demand(
            runs,
            2 * model.shape.layer_weights * padded,
            4 * model.shape.heads * model.shape.head_dim * positions,
            runs * model.layer_bytes + (attended.held + padded) * model.kv_row_bytes,
        )

    def _stream(self, ledger: Ledger, busy_ns: list[int], ahead: ReadAhead) -> Flow:
        flash, rates = self._profile.flash, self._flash
        streamed = max(0, len(busy_ns) - self.resident)
        if flash is None or rates is None or not streamed:
            return Flow(0, 0, 0)
        size = self._target.layer_bytes
        reads = [0] * (len(busy_ns) - streamed) + [rates.read_ns(size, first=i == 0) for i in range(streamed)]
        if flash.reads == "serial":
            flow = stream_serially(reads, busy_ns)
        else:
            flow = stream(reads, busy_ns, flash.buffer_layers.base, ahead.idle_ns if flash.reads_ahead else 0)
        ledger.hold(Component.FLASH, flow.wait_ns)
        meter = Meter(Component.FLASH, FLASH, "layers", "B", rates.bytes_per_second, flash.energy.base)
        ledger.use(meter, size * streamed, alone_ns=flow.read_ns)
        memory = self._device(Role.VERIFIER)[1].memory
        written = self._profile.memories[memory]
        into = Meter(Component.FLASH, memory, "layers written", "B", written.bandwidth.base, written.energy.base)
        ledger.use(into, size * streamed)
        ledger.move(memory, size * streamed)
        return flow

    def _hand_over(self, ledger: Ledger, numbers: int, between: tuple[Role, Role], taken: Taken) -> None:
        """So many float16 numbers from one role to the next, written once and read once; nothing on one device."""
        handover = self._profile.handover
        if handover is None or not numbers or self.device_of(between[0]) == self.device_of(between[1]):
            return
        memory = self._profile.memories[handover.through]
        left = _left(memory, taken.get(handover.through, _NOTHING))
        moved = 2 * numbers * _FP16_BYTES
        duration = handover.latency.base + time_ns(moved, left)
        meter = Meter(Component.TRANSFER, handover.through, "rows handed over", "B", left, memory.energy.base)
        ledger.hold(Component.TRANSFER, duration)
        ledger.use(meter, moved, alone_ns=duration)
        ledger.move(handover.through, moved)


def _matrix(model: PricedModel, weights: int, rows: int, buckets: list[int] | None) -> Demand:
    runs, padded = bucket_runs(rows, buckets)
    return Demand(runs, 2 * weights * padded, 0, runs * model.datatype.bytes_of(weights))


def _graphs(demands: Sequence[Demand], resident: int) -> list[int]:
    """By layer, how many graphs begin there: with each streamed layer, with the first, and where the bucket changes."""
    return [
        demand.runs if layer == 0 or layer >= resident or demand != demands[layer - 1] else 0
        for layer, demand in enumerate(demands)
    ]


def _left(memory: Memory, taken: Fraction) -> int:
    """Bytes a second for a task that begins: what others leave of the channel, or half of it. Memory controllers are
    fair, and those who were there first are not priced anew."""
    if taken < 0:
        raise ValueError(f"taken = {taken}, must not be negative")
    return int(memory.bandwidth.base * max(1 - taken, _FAIR))
