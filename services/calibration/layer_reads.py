"""How long the weight store takes to give a layer."""

from __future__ import annotations

import mmap
import time
from collections.abc import Sequence

from calibration.errors import CalibrationError
from hetspec.model.weights import WeightsError, WeightSource
from hetspec.rpc.tls import RpcTls

_TIMEOUT_S = 30.0


def layer_reads_ns(address: str, precision: str, layers: Sequence[int], tls: RpcTls | None = None) -> list[int]:
    """Of each of the target's `layers`, which is read once before: then it lies in memory. Raises CalibrationError."""
    try:
        source = WeightSource.open(address, "target", precision, _TIMEOUT_S, tls=tls)
    except WeightsError as error:
        raise CalibrationError(str(error)) from error
    try:
        segments = [source.layout.segments[f"layers.{layer}"] for layer in layers]
        buffer = memoryview(mmap.mmap(-1, max(segment.bytes for segment in segments)))
        taken = []
        for segment in [segments[0], *segments, *segments]:
            start_ns = time.perf_counter_ns()
            source.read_into(segment.offset, buffer[: segment.bytes])
            taken.append(time.perf_counter_ns() - start_ns)
        return taken[1 + len(segments) :]
    except WeightsError as error:
        raise CalibrationError(str(error)) from error
    finally:
        source.close()
