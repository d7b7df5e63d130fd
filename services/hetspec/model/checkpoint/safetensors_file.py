"""Reads safetensors: the header, and tensors on demand from a mapped file.

The format: https://github.com/huggingface/safetensors#format. The library's numpy side has no bfloat16.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint.errors import CheckpointError

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4}
IDS = "U32"  # of token ids; the others are weights


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """start, stop: bytes from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """An open file. Raises CheckpointError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._data: NDArray[np.uint8] = np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise CheckpointError(f"{path}: cannot be read: {error}") from error
        length = int.from_bytes(self._data[:8].tobytes(), "little")
        self._start = 8 + length
        if len(self._data) < 8 or length > _MAX_HEADER_BYTES or self._start > len(self._data):
            raise CheckpointError(f"{path}: truncated or not safetensors: header of {length} bytes at byte 8")
        header = self._parse(self._data[8 : self._start].tobytes())
        header.pop("__metadata__", None)
        self.tensors = {name: self._entry(name, entry) for name, entry in header.items()}
        self._check_coverage()

    def _parse(self, text: bytes) -> dict[str, Any]:
        try:
            header = json.loads(text)
        except ValueError as error:  # also not UTF-8
            raise CheckpointError(f"{self.path}: header is not JSON: {error}") from error
        except RecursionError as error:
            raise CheckpointError(f"{self.path}: header is nested too deeply") from error
        if not isinstance(header, dict):
            raise CheckpointError(f"{self.path}: header is not a JSON object")
        return header

    def _entry(self, name: str, entry: Any) -> StoredTensor:
        where = f"{self.path}: tensor {name[:100]}"
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise CheckpointError(f"{where}: header entry must have dtype, shape, data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
            raise CheckpointError(f"{where}: dtype {dtype!r:.40} is not supported, only {', '.join(_ITEM_BYTES)}")
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise CheckpointError(f"{where}: shape {shape!r:.60} with data_offsets {offsets!r:.60}")
        if math.prod(shape) * _ITEM_BYTES[dtype] != offsets[1] - offsets[0]:
            raise CheckpointError(f"{where}: shape {shape} in {dtype} does not fill bytes {offsets[0]} to {offsets[1]}")
        start, stop = self._start + offsets[0], self._start + offsets[1]
        if stop > len(self._data):
            raise CheckpointError(
                f"{where}: truncated: lies at {start} to {stop}, the file has {len(self._data)} bytes"
            )
        return StoredTensor(dtype, tuple(shape), start, stop)

    def _check_coverage(self) -> None:
        position = self._start
        for name, tensor in sorted(self.tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
            if tensor.start != position:
                raise CheckpointError(
                    f"{self.path}: tensor {name} begins at byte {tensor.start}, must be at {position}"
                )
            position = tensor.stop
        if position != len(self._data):
            raise CheckpointError(f"{self.path}: tensors end at byte {position}, the file has {len(self._data)}")

    def raw(self, name: str) -> NDArray[np.uint8]:
        tensor = self.tensors[name]
        return self._data[tensor.start : tensor.stop]

    def check_shape(self, name: str, shape: tuple[int, ...], source: str, *, ids: bool = False) -> None:
        """Of a tensor that is there. source: who says so. ids: it holds token ids, not weights."""
        tensor = self.tensors[name]
        if tensor.shape != shape:
            raise CheckpointError(
                f"{self.path}: tensor {name} has shape {list(tensor.shape)}, {source} says {list(shape)}"
            )
        if (tensor.dtype == IDS) != ids:
            kinds = IDS if ids else ", ".join(kind for kind in _ITEM_BYTES if kind != IDS)
            raise CheckpointError(f"{self.path}: tensor {name} is {tensor.dtype}, must be {kinds}")

    def ids(self, name: str) -> NDArray[np.uint32]:
        return np.frombuffer(self.raw(name).tobytes(), "<u4")

    def rows(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """Rows [start, stop) of weights along the first dimension, as float32."""
        tensor = self.tensors[name]
        row_bytes = (tensor.stop - tensor.start) // tensor.shape[0]
        raw = self._data[tensor.start + start * row_bytes : tensor.start + stop * row_bytes]
        return _decode(raw.tobytes(), tensor.dtype).reshape(stop - start, *tensor.shape[1:])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)


def _decode(raw: bytes, dtype: str) -> NDArray[np.float32]:
    if dtype == "BF16":
        widened: NDArray[np.uint32] = np.frombuffer(raw, "<u2").astype("<u4") << np.uint32(16)
        return widened.view("<f4")
    return np.frombuffer(raw, "<f4" if dtype == "F32" else "<f2").astype(np.float32)
