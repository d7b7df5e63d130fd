"""Reads GGUF: the header into plain values, tensors on demand from a mapped file. Lengths are checked before use.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Block formats are decoded by the `gguf` package.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from gguf.quants import dequantize
from numpy.typing import NDArray

from hetspec.model.checkpoint.errors import CheckpointError
from hetspec.model.pack import round_up

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_MAX_ENTRIES = 1 << 20  # of metadata keys, and of tensors: only a corrupt count is higher
_SCALARS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "|b1",
}
_Q = GGMLQuantizationType
DECODABLE = frozenset(
    {_Q.F32, _Q.F16, _Q.BF16, _Q.Q8_0, _Q.Q4_0, _Q.Q4_1, _Q.Q5_0, _Q.Q5_1}
    | {_Q.Q2_K, _Q.Q3_K, _Q.Q4_K, _Q.Q5_K, _Q.Q6_K}
)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """offset: from the start of the file. shape: slowest dimension first, as numpy has it."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    bytes: int


class GgufFile:
    """An open GGUF file. `metadata` holds ints, floats, bools, strings and lists of them. Raises CheckpointError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map(path)
        cursor = _Cursor(path, self._data)
        if cursor.take(4, "magic") != _MAGIC:
            raise CheckpointError(f"{path}: not a GGUF file (it begins with {bytes(self._data[:4])!r})")
        version = cursor.u32("version")
        if version not in _VERSIONS:
            raise CheckpointError(f"{path}: GGUF version {version}, must be 2 or 3, little-endian")
        tensors, keys = cursor.count("tensor count"), cursor.count("metadata count")
        self.metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = cursor.string("a metadata key")
            if key in self.metadata:
                raise CheckpointError(f"{path}: metadata key {key!r} appears twice")
            self.metadata[key] = cursor.value(cursor.u32(key), key)
        self.tensors = self._read_tensor_table(cursor, tensors)

    def _read_tensor_table(self, cursor: _Cursor, count: int) -> dict[str, GgufTensor]:
        raw: dict[str, GgufTensor] = {}
        for _ in range(count):
            name = cursor.string("a tensor name")
            if name in raw:
                raise CheckpointError(f"{self.path}: tensor {name} appears twice")
            raw[name] = cursor.tensor(name)
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            raise CheckpointError(f"{self.path}: general.alignment = {alignment!r}, must be a power of two from 8 up")
        return self._placed(raw, round_up(cursor.position, alignment), alignment)

    def _placed(self, raw: dict[str, GgufTensor], start: int, alignment: int) -> dict[str, GgufTensor]:
        """Offsets from the start of the file. Tensors lie one after another, each at a multiple of the alignment."""
        placed: dict[str, GgufTensor] = {}
        expected = 0
        for name, tensor in raw.items():
            offset = start + tensor.offset
            if tensor.offset != expected:
                raise CheckpointError(
                    f"{self.path}: tensor {name} lies at byte {offset}, must be at {start + expected}"
                )
            if offset + tensor.bytes > len(self._data):
                raise CheckpointError(
                    f"{self.path}: truncated: tensor {name} lies at bytes {offset} to {offset + tensor.bytes}, "
                    f"the file has {len(self._data)}"
                )
            placed[name] = replace(tensor, offset=offset)
            expected = round_up(tensor.offset + tensor.bytes, alignment)
        if start + expected < len(self._data):
            raise CheckpointError(f"{self.path}: ends at byte {start + expected}, the file has {len(self._data)}")
        return placed

    def rows(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Rows [start, stop) along the first dimension, as float32."""
        tensor = self.tensors[name]
        stop = tensor.shape[0] if stop is None else stop
        row_bytes = tensor.bytes // tensor.shape[0]
        raw = self._data[tensor.offset + start * row_bytes : tensor.offset + stop * row_bytes]
        values = dequantize(raw.reshape(-1, row_bytes), tensor.kind)
        return values.reshape(stop - start, *tensor.shape[1:]).astype(np.float32, copy=False)


class _Cursor:
    """Reads forward; every error names the file, the offset and what was being read."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self._path = path
        self._data = data
        self.position = 0

    def fail(self, what: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._path}: at byte {self.position}, {what[:100]!r}: {problem}")

    def take(self, size: int, what: str) -> bytes:
        if size > len(self._data) - self.position:
            left = len(self._data) - self.position
            raise self.fail(what, f"truncated: needs {size} bytes, the file has {left} left")
        self.position += size
        return self._data[self.position - size : self.position].tobytes()

    def u32(self, what: str) -> int:
        return int(struct.unpack("<I", self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack("<Q", self.take(8, what))[0])

    def count(self, what: str) -> int:
        value = self.u64(what)
        if value > _MAX_ENTRIES:
            raise self.fail(what, f"{value} entries, must be at most {_MAX_ENTRIES}")
        return value

    def string(self, what: str) -> str:
        raw = self.take(self.u64(what), what)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.fail(what, "not UTF-8") from error

    def value(self, kind: int, what: str) -> Any:
        if kind == GGUFValueType.STRING:
            return self.string(what)
        if kind == GGUFValueType.ARRAY:
            return self._array(what)
        return self._scalars(kind, 1, what)[0]

    def _array(self, what: str) -> list[Any]:
        kind, count = self.u32(what), self.u64(what)
        if kind == GGUFValueType.ARRAY:
            raise self.fail(what, "an array of arrays is not supported")
        if kind == GGUFValueType.STRING:
            return [self.string(what) for _ in range(count)]
        return self._scalars(kind, count, what)

    def _scalars(self, kind: int, count: int, what: str) -> list[Any]:
        if kind not in _SCALARS:
            raise self.fail(what, f"unknown value type {kind}")
        dtype = np.dtype(_SCALARS[GGUFValueType(kind)])
        values: list[Any] = np.frombuffer(self.take(dtype.itemsize * count, what), dtype).tolist()
        return values

    def tensor(self, name: str) -> GgufTensor:
        """An entry of the tensor table after its name; its offset is still relative to the data section."""
        dimensions = self.u32(name)
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise self.fail(name, f"{dimensions} dimensions, must be in [1, {_MAX_DIMENSIONS}]")
        shape = tuple(self.u64(name) for _ in range(dimensions))[::-1]
        kind, offset = self.u32(name), self.u64(name)
        if kind not in DECODABLE:
            known = _Q(kind).name if kind in set(_Q) else f"type {kind}"
            raise self.fail(name, f"tensor format {known} is not supported")
        block, block_bytes = GGML_QUANT_SIZES[_Q(kind)]
        if 0 in shape or shape[-1] % block:
            raise self.fail(name, f"shape {list(shape)}: rows must be whole blocks of {block}")
        return GgufTensor(_Q(kind), shape, offset, math.prod(shape) // block * block_bytes)


def _map(path: Path) -> NDArray[np.uint8]:
    try:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))  # slices of a memmap itself are slow
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
