"""Costs on described hardware: rooflines, graphs of fixed shapes, layers that stream from flash."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hetspec.hardware.capacity import check_fit, left_for_target, why_not_pre_verify
from hetspec.hardware.channels import Beside
from hetspec.hardware.cost import Cost, Part, split
from hetspec.hardware.cost_as import PricedModel, RealShapes
from hetspec.hardware.demands import Attended, layer, matrix
from hetspec.hardware.execution import Execution
from hetspec.hardware.flash import ReadAhead, resident_layers
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.machine import Machine
from hetspec.hardware.platform import Role
from hetspec.hardware.profile import FLASH, Described
from hetspec.hardware.rooflines import bucket_runs
from hetspec.hardware.streaming import Layers, Streaming
from hetspec.hardware.work import DraftWork, VerifyWork, WalkWork


class DescribedCosts:
    """target, draft: as which the work is priced; draft is none where lookup alone drafts. Raises ProfileError where
    the models do not fit."""

    longest_kv: int | None = None

    def __init__(self, profile: Described, target: PricedModel, draft: PricedModel | None, real: RealShapes) -> None:
        self._profile = profile
        self._target = target
        self._draft = draft
        layers, real_layers, flash = target.n_layers, real.target.n_layers, profile.flash
        self._real_layer = [layer * real_layers // layers for layer in range(layers)]
        budget = flash.budget.base if flash else layers * target.layer_bytes
        self._resident = resident_layers(budget, target.layer_bytes, layers)
        check_fit(profile, target, draft, self._resident)
        self._machine = Machine(profile, left_for_target(profile, target, draft))
        self.pre_verification = why_not_pre_verify(profile, target, draft, self._resident)
        if flash is not None:
            name = profile.devices[profile.placement.verifier].memory
            self._streaming = Streaming(flash, target.layer_bytes, self._resident, name, profile.memories[name])

    def verify(self, work: VerifyWork, ahead: ReadAhead, beside: Beside) -> Cost:
        if work.role is Role.PRE_VERIFIER:
            return self._pre_verify(work, beside)
        rows = self._rows_by_layer(work.rows_by_layer)
        layers = self._layers(work, rows, self._resident, beside)
        ledger, ready_ns = Ledger(self.device_of(work.role)), 0
        if len(rows) > self._resident:
            ready_ns = self._streaming.enter(ledger, layers, ahead)
        else:
            _enter(ledger, layers)
        return ledger.close(ready_ns, _operator_ns(self._target, layers[0][0]), work.rebuilt)

    def draft(self, work: DraftWork, beside: Beside) -> Cost:
        """A step's rows go through the draft's layers; head rows are spread over the steps as evenly as they can be."""
        ledger = Ledger(self.device_of(Role.DRAFTER))
        if not work.step_rows:
            return ledger.close()
        model = self._draft
        assert model is not None
        execution, attended = self._machine.execution(Role.DRAFTER, model, beside), Attended.of(work.items)
        known: dict[tuple[int, int], Part] = {}
        features = work.step_rows[0] * model.shape.hidden if model.mix_weights and work.takes_features else 0
        for step in zip(work.step_rows, split(work.head_rows, [1] * len(work.step_rows)), strict=True):
            if (part := known.get(step)) is None:
                part = known[step] = self._step(execution, model, attended, *step, beside)
            self._machine.hand_over(ledger, features, (Role.VERIFIER, Role.DRAFTER), beside)
            ledger.add(part)
            ledger.end_part()
            features = 0
        return ledger.close()

    def step(self, work: DraftWork, beside: Beside) -> Cost:
        return self.draft(work, beside)

    def walk(self, work: WalkWork, beside: Beside) -> Cost:
        """Lazily: the sampler gets the hidden rows and takes one after another through the head. At once: the
        verifier's device does, padded to its bucket, and hands the logits over."""
        if work.role is Role.PRE_SAMPLER:
            return self._pre_sample(work, beside)
        role = Role.SAMPLER if work.lazy else Role.VERIFIER
        ledger, execution = Ledger(self.device_of(role)), self._machine.alone(role, self._target, beside)
        between, weights = (Role.VERIFIER, Role.SAMPLER), self._target.head_weights
        if work.lazy:
            self._machine.hand_over(ledger, work.rows * self._target.shape.hidden, between, beside)
            execution.roof.launch_graphs(ledger, work.head_rows)
            execution.enter(ledger, matrix(self._target, weights, 1), work.head_rows)
        elif work.head_rows:
            execution.roof.launch_graphs(ledger, bucket_runs(work.head_rows, execution.buckets)[0])
            execution.enter(ledger, matrix(self._target, weights, work.head_rows))
            self._machine.hand_over(ledger, work.head_rows * self._target.head_rows, between, beside)
        return ledger.close()

    def device_of(self, role: Role) -> str:
        return self._machine.device_of(role)

    def is_preemptible(self, device: str) -> bool:
        return all(self._profile.devices[name].preemptible for name in device.split("+"))

    def padded_rows(self, role: Role, rows: int) -> int:
        buckets = self._machine.placed(role)[1].buckets
        return bucket_runs(rows, buckets.rows if buckets else None)[1]

    def static_uw(self) -> dict[str, int]:
        """Power of everything that there is, whether it works or not."""
        powers = {name: device.static_power.base for name, device in self._profile.devices.items()}
        powers |= {name: memory.static_power.base for name, memory in self._profile.memories.items()}
        return powers | ({FLASH: self._profile.flash.static_power.base} if self._profile.flash else {})

    def channel_bandwidth(self) -> dict[str, int]:
        return {name: memory.bandwidth.base for name, memory in self._profile.memories.items()}

    def _pre_verify(self, work: VerifyWork, beside: Beside) -> Cost:
        if self.pre_verification is not None:
            raise ValueError(self.pre_verification)
        rows = self._rows_by_layer(work.rows_by_layer)
        ledger = Ledger(self.device_of(work.role))
        self._machine.gate(ledger, work.role)
        _enter(ledger, self._layers(work, rows, len(rows), beside))
        return ledger.close()

    def _pre_sample(self, work: WalkWork, beside: Beside) -> Cost:
        ledger = Ledger(self.device_of(work.role))
        execution = self._machine.execution(Role.PRE_VERIFIER, self._target, beside)
        execution.enter(ledger, matrix(self._target, self._target.head_weights, work.head_rows))
        return ledger.close()

    def _rows_by_layer(self, real_rows: Sequence[int]) -> list[int]:
        """Of the priced model's layers: those of the real layer at the same fraction of the depth. A pass that was cut
        ends there, too."""
        return [real_rows[layer] for layer in self._real_layer if layer < len(real_rows)]

    def _layers(self, work: VerifyWork, rows: Sequence[int], resident: int, beside: Beside) -> Layers:
        """Those that are streamed launch a graph each; of those that stay, all of a bucket are one."""
        execution, attended = self._machine.execution(work.role, self._target, beside), Attended.of(work.items)

        def part(count: int, graphs: int) -> Part:
            return self._layer(execution, work.role, count, graphs, attended, beside)

        layers: Layers = []
        before: tuple[int, int] | None = None
        for count, run in groupby(rows[:resident]):
            shape, times = bucket_runs(count, execution.buckets), len(list(run))
            if shape != before:
                layers.append((part(count, shape[0]), 1))
                times -= 1
            if times:
                layers.append((part(count, 0), times))
            before = shape
        for count, run in groupby(rows[resident:]):
            layers.append((part(count, bucket_runs(count, execution.buckets)[0]), len(list(run))))
        return layers

    def _layer(
        self, execution: Execution, role: Role, rows: int, graphs: int, attended: Attended, beside: Beside
    ) -> Part:
        ledger = Ledger("")
        execution.enter(ledger, layer(self._target, rows, attended))
        self._machine.between_operators(ledger, role, self._target, rows, attended, beside)
        execution.roof.launch_graphs(ledger, graphs)
        return ledger.end_part()

    def _step(
        self, execution: Execution, model: PricedModel, attended: Attended, rows: int, head_rows: int, beside: Beside
    ) -> Part:
        one, ledger = Ledger(""), Ledger("")
        execution.enter(one, layer(model, rows, attended))
        self._machine.between_operators(one, Role.DRAFTER, model, rows, attended, beside)
        ledger.add(one.end_part(), model.n_layers)
        execution.roof.launch_graphs(ledger, bucket_runs(rows, execution.buckets)[0])
        if model.mix_weights:
            execution.enter(ledger, matrix(model, model.mix_weights, rows))
        if head_rows:
            execution.enter(ledger, matrix(model, model.head_weights, head_rows))
        return ledger.end_part()


def _enter(ledger: Ledger, layers: Layers) -> None:
    for part, count in layers:
        ledger.repeat(part, count)


def _operator_ns(model: PricedModel, part: Part) -> int:
    """Of a layer: whoever comes at some moment waits for half of the operator under way, and comes more often during a
    longer one. Operators are as long as their matrices are large."""
    sizes = model.shape.matrices
    return part.duration_ns * sum(size * size for size in sizes) // (2 * sum(sizes) ** 2)
