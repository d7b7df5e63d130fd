"""What a profile describes: devices, the memories they work from, flash, and who runs where."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from hetspec.hardware.datatypes import Datatype
from hetspec.hardware.quantity import (
    Bandwidth,
    Count,
    EnergyPerByte,
    EnergyPerOp,
    Power,
    Provenance,
    Rate,
    Size,
    SizeOrNone,
    Strict,
    Text,
    Time,
)
from hetspec.hardware.units import Dimension, parse


class Role(StrEnum):
    VERIFIER = "verifier"
    DRAFTER = "drafter"
    SAMPLER = "sampler"
    PRE_VERIFIER = "pre_verifier"  # the drafter, where it holds the target
    PRE_SAMPLER = "pre_sampler"  # the drafter too: chooses by what it has pre-verified


class Placement(Strict):
    """The device of each role."""

    verifier: Text
    drafter: Text
    sampler: Text

    def device_of(self, role: Role) -> str:
        match role:
            case Role.VERIFIER:
                return self.verifier
            case Role.DRAFTER | Role.PRE_VERIFIER | Role.PRE_SAMPLER:
                return self.drafter
            case Role.SAMPLER:
                return self.sampler


class Operand(StrEnum):
    """What is multiplied. ATTENTION: queries, keys and values, float16, few rows at a time."""

    INT4 = "int4"
    INT8 = "int8"
    FP16 = "fp16"
    ATTENTION = "attention"


_OPERANDS = {operand.value: operand for operand in Operand}


def _as_operand(name: object) -> object:
    return _OPERANDS.get(name, name) if isinstance(name, str) else name


class Arithmetic(Strict):
    """Peak operations a second, of one unit of the device, and the energy of an operation. A multiply-add is two."""

    rate: Rate
    energy: EnergyPerOp


_MOST_ROWS = 10**6


class Buckets(Provenance):
    """Rows for which the device has compiled graphs; others are padded, more than the largest run several times."""

    rows: Annotated[list[int], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_rows(self) -> Buckets:
        if self.rows != sorted(set(self.rows)) or not 1 <= self.rows[0] <= self.rows[-1] <= _MOST_ROWS:
            raise ValueError(f"rows {self.rows}, must be positive and ascending, at most {_MOST_ROWS}")
        return self


class Nonlinear(Strict):
    """Who computes softmax, norms and activations. by: `itself`, with units beside its memory; the helper's
    `vector_unit`, to which the numbers travel, and back; or the helper `in_turn`: likewise, but it takes one operator
    after another, so that they wait for the one under way. operations: of a number, at the helper's rate of attention.
    """

    by: Literal["itself", "vector_unit", "in_turn"]
    helper: Text
    operations: Count


class Device(Strict):
    """units: how many of one kind work together (each with the rates given). memory: where the weights and caches of
    what runs on it lie. bandwidth: what it alone gets of that memory. launch: of a graph: consecutive resident layers
    of one bucket are one graph, a layer that is streamed from flash is one of its own. nonlinear: its own where it is
    not given. gate: from drafting to checking with the target, and back. preemptible: whether a task of no use any more
    ends with its draft step or layer, or goes on to its end."""

    units: Count | None = None
    arithmetic: dict[Annotated[Operand, BeforeValidator(_as_operand)], Arithmetic]
    memory: Text
    bandwidth: Bandwidth
    launch: Time
    buckets: Buckets | None = None
    nonlinear: Nonlinear | None = None
    gate: Time | None = None
    preemptible: bool = True
    static_power: Power

    def operand_of(self, datatype: Datatype) -> Operand | None:
        """int4 weights are widened to int8 where the device has no arithmetic of their own."""
        wanted = [Operand(datatype.value)] + ([Operand.INT8] if datatype is Datatype.INT4 else [])
        return next((operand for operand in wanted if operand in self.arithmetic), None)

    @property
    def attention(self) -> Operand | None:
        return next((o for o in (Operand.ATTENTION, Operand.FP16) if o in self.arithmetic), None)

    def rate_of(self, operand: Operand) -> int:
        """Operations a second, of all units."""
        return self.arithmetic[operand].rate.base * (self.units.base if self.units else 1)


class Memory(Strict):
    """With the channel that leads to it, which devices share."""

    capacity: Size
    bandwidth: Bandwidth
    energy: EnergyPerByte
    static_power: Power


class ReadRate(Bandwidth):
    """Bytes a second when all requests are of one size and enough of them wait."""

    request: Text

    @property
    def request_bytes(self) -> int:
        return parse(self.request, Dimension.SIZE)

    @model_validator(mode="after")
    def _check_request(self) -> ReadRate:
        if not self.request_bytes:
            raise ValueError(f"request {self.request!r}, must be positive")
        return self


class Flash(Strict):
    """Where the target's layers are read from, those beyond `budget` in every pass.

    reads: `overlap` reads the next layers while one is computed, `serial` reads each before it. buffer_layers: read and
    waiting, beside the one that is computed. reads_ahead: whether between two passes the buffer is filled for the next.
    """

    bandwidth: Annotated[list[ReadRate], Field(min_length=1)]
    request: Size
    queue_depth: Count
    latency: Time
    energy: EnergyPerByte
    static_power: Power
    budget: SizeOrNone
    buffer_layers: Count
    reads: Literal["overlap", "serial"]
    reads_ahead: bool

    @model_validator(mode="after")
    def _check_table(self) -> Flash:
        sizes = [rate.request_bytes for rate in self.bandwidth]
        if sizes != sorted(set(sizes)):
            raise ValueError("bandwidth: requests must ascend")
        if not sizes[0] <= self.request.base <= sizes[-1]:
            told = f"{self.bandwidth[0].request} to {self.bandwidth[-1].request}"
            raise ValueError(f"request {self.request.value}, must be within what bandwidth tells: {told}")
        return self

    @model_validator(mode="after")
    def _check_reads(self) -> Flash:
        if self.reads == "serial" and self.reads_ahead:
            raise ValueError("reads_ahead, must be false where reads are serial")
        return self


Schedule = Literal["by_task", "operators_wait", "operators_split"]
"""How verifier and drafter work together where they are two devices. by_task: each does its tasks at its own pace.
operators_wait: at every operator each waits for the other, so that one task at a time runs on both. operators_split:
both compute every operator of every task, as much of it each as takes them equally long."""


class Handover(Strict):
    """Of rows between two devices: written to a memory that both reach and read from it."""

    through: Text
    latency: Time
