"""A profile's devices as they work together: who computes what of a role, and what there is to wait for between."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hetspec.hardware.channels import Beside, Channels
from hetspec.hardware.cost import Component, Meter
from hetspec.hardware.cost_as import PricedModel
from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.demands import Attended
from hetspec.hardware.execution import Alone, Execution, Split
from hetspec.hardware.ledger import Ledger
from hetspec.hardware.platform import Device, Nonlinear, Role
from hetspec.hardware.profile import Described
from hetspec.hardware.rooflines import Roof
from hetspec.hardware.units import time_ns

_OPERATORS = 5  # of a layer: queries, keys and values; attention; its output; the feed-forward layer's first; its last
_NONLINEAR = 4  # of a layer: two norms, softmax, activation


class Machine:
    """most: of the target, what fits beside the draft model in the memory of the drafter's device."""

    def __init__(self, profile: Described, most: Fraction) -> None:
        self._profile = profile
        self._most = most
        self._channels = Channels(profile)
        self._roofs: dict[tuple[str, Datatype, int], Roof] = {}
        self._helpers = {
            name: _helper(device.nonlinear, profile)
            for name, device in profile.devices.items()
            if device.nonlinear is not None and device.nonlinear.by != "itself"
        }

    def device_of(self, role: Role) -> str:
        """Where operators keep verifier and drafter together, the two count as one."""
        placed = self._profile.placement
        name, pair = placed.device_of(role), (placed.verifier, placed.drafter)
        return "+".join(pair) if self._profile.schedule != "by_task" and name in pair else name

    def alone(self, role: Role, model: PricedModel, beside: Beside) -> Alone:
        name, device = self.placed(role)
        return Alone(self._roof(name, device, model, beside), _buckets(device))

    def execution(self, role: Role, model: PricedModel, beside: Beside) -> Execution:
        if self._profile.schedule != "operators_split":
            return self.alone(role, model, beside)
        own, other = (self.alone(of, model, beside) for of in (Role.VERIFIER, Role.DRAFTER))
        most = Fraction(1) if role is Role.DRAFTER else self._most
        return Split(own.roof, own.buckets, other.roof, other.buckets, most)

    def between_operators(
        self, ledger: Ledger, role: Role, model: PricedModel, rows: int, attended: Attended, beside: Beside
    ) -> None:
        """Of a layer: its operators that another device computes, and what devices hand each other."""
        if (helper := self._helpers.get(self.placed(role)[0])) is not None:
            self._help(ledger, helper, model, rows, attended, beside)
        if self._profile.schedule == "operators_wait":
            self._channels.hand_over(ledger, 0, _OPERATORS, beside)
        elif self._profile.schedule == "operators_split":
            self._channels.hand_over(ledger, rows * _outputs(model), _OPERATORS, beside)

    def hand_over(self, ledger: Ledger, numbers: int, between: tuple[Role, Role], beside: Beside) -> None:
        """From one role to the next; nothing on one device."""
        first, second = (self._profile.placement.device_of(role) for role in between)
        if numbers and first != second:
            self._channels.hand_over(ledger, numbers, 1, beside)

    def gate(self, ledger: Ledger, role: Role) -> None:
        """From drafting to checking, and back."""
        name, device = self.placed(role)
        if device.gate is not None:
            duration_ns = 2 * device.gate.base
            ledger.hold(Component.LAUNCH, duration_ns)
            ledger.use(Meter(Component.LAUNCH, name, "gatings", "gating", 0, 0), 2, alone_ns=duration_ns)
            ledger.end_part()

    def placed(self, role: Role) -> tuple[str, Device]:
        name = self._profile.placement.device_of(role)
        return name, self._profile.devices[name]

    def _roof(self, name: str, device: Device, model: PricedModel, beside: Beside) -> Roof:
        left = self._channels.left(device.memory, beside)
        key = name, model.datatype, left
        if (roof := self._roofs.get(key)) is None:
            energy_aj = self._profile.memories[device.memory].energy.base
            roof = self._roofs[key] = _roof_of(name, device, model.datatype, left, energy_aj)
        return roof

    def _help(
        self, ledger: Ledger, helper: _Helper, model: PricedModel, rows: int, attended: Attended, beside: Beside
    ) -> None:
        """Numbers travel to the helper and back, one operator after another; there its rate of attention holds, and
        the queue where it takes turns."""
        shape = model.shape
        same = 2 * shape.hidden * rows + shape.heads * attended.by(rows)
        there, back = same + shape.ffn * rows * (2 if shape.gated else 1), same + shape.ffn * rows
        self._channels.hand_over(ledger, there + back, 2 * _NONLINEAR, beside)
        operations = there * helper.operations
        ledger.hold(Component.COMPUTE, time_ns(operations, helper.work.per_second))
        ledger.use(helper.work, operations)
        wait_ns = beside.operator_ns.get(helper.work.device, 0) if helper.takes_turns else 0
        ledger.hold(Component.QUEUE, _NONLINEAR * wait_ns)
        ledger.use(helper.queue, _NONLINEAR if wait_ns else 0, alone_ns=_NONLINEAR * wait_ns)


@dataclass(frozen=True, slots=True)
class _Helper:
    """What computes another device's non-linear operators. operations: of a number."""

    work: Meter
    queue: Meter
    operations: int
    takes_turns: bool


def _helper(nonlinear: Nonlinear, profile: Described) -> _Helper:
    name, device = nonlinear.helper, profile.devices[nonlinear.helper]
    assert device.attention is not None  # checked with the profile
    rate, energy_aj = device.rate_of(device.attention), device.arithmetic[device.attention].energy.base
    work = Meter(Component.COMPUTE, name, "softmax, norms, activations", "op", rate, energy_aj)
    queue = Meter(Component.QUEUE, name, "operators under way", "operator", 0, 0)
    return _Helper(work, queue, nonlinear.operations.base, nonlinear.by == "in_turn")


def _buckets(device: Device) -> list[int] | None:
    return device.buckets.rows if device.buckets else None


def _outputs(model: PricedModel) -> int:
    """Numbers that the operators of a layer give for a row."""
    shape = model.shape
    attention = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return attention + 2 * shape.hidden + shape.ffn * (2 if shape.gated else 1)


def _roof_of(name: str, device: Device, datatype: Datatype, left: int, energy_aj: int) -> Roof:
    """left: bytes a second of the memory's channel; energy_aj: of a byte of it."""
    operand = device.operand_of(datatype)
    assert operand is not None  # checked when pricing began
    attention = device.attention or operand  # a sampler alone attends to nothing
    weights, attending = device.arithmetic[operand], device.arithmetic[attention]
    rate, what = min(device.bandwidth.base, left), "weights, keys and values"
    return Roof(
        Meter(Component.COMPUTE, name, f"{operand} products", "op", device.rate_of(operand), weights.energy.base),
        Meter(Component.COMPUTE, name, "attention", "op", device.rate_of(attention), attending.energy.base),
        Meter(Component.MEMORY, device.memory, what, "B", rate, energy_aj, is_channel=True),
        Meter(Component.LAUNCH, name, "graphs", "graph", 0, 0),
        device.launch.base,
    )
