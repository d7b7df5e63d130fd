"""How weights are stored and in what they are multiplied."""

from __future__ import annotations

from enum import StrEnum

from hetspec.hardware.units import ceil_div

GROUP_WEIGHTS = 32


class Datatype(StrEnum):
    """int4, int8: groups of 32 weights with a float16 scale each, as GGML's blocks Q4_0 and Q8_0 (ggml-common.h:
    18 and 34 bytes a block)."""

    INT4 = "int4"
    INT8 = "int8"
    FP16 = "fp16"

    def bytes_of(self, weights: int) -> int:
        """Scales included."""
        return ceil_div(weights * _GROUP_BYTES[self], GROUP_WEIGHTS)


_GROUP_BYTES = {Datatype.INT4: 18, Datatype.INT8: 34, Datatype.FP16: 2 * GROUP_WEIGHTS}
