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


class Placement(Strict):
    """The device of each role."""

    verifier: Text
    drafter: Text
    sampler: Text

    def device_of(self, role: Role) -> str:
        return {Role.VERIFIER: self.verifier, Role.DRAFTER: self.drafter, Role.SAMPLER: self.sampler}[role]


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


class Buckets(Provenance):
    """Rows for which the device has compiled graphs; others are padded, more than the largest run several times."""

    rows: Annotated[list[int], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_rows(self) -> Buckets:
        if self.rows != sorted(set(self.rows)) or self.rows[0] < 1:
            raise ValueError(f"rows {self.rows}, must be positive and ascending")
        return self


class Device(Strict):
    """units: how many of one kind work together (each with the rates given). memory: where the weights and caches of
    what runs on it lie. bandwidth: what it alone gets of that memory. launch: of a graph: consecutive resident layers
    of one bucket are one graph, a layer that is streamed from flash is one of its own."""

    units: Count | None = None
    arithmetic: dict[Annotated[Operand, BeforeValidator(_as_operand)], Arithmetic]
    memory: Text
    bandwidth: Bandwidth
    launch: Time
    buckets: Buckets | None = None
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


class Handover(Strict):
    """Of rows between two devices: written to a memory that both reach and read from it."""

    through: Text
    latency: Time
