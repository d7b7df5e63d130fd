"""The pack: a checkpoint converted once into the units' own layout, so that a streamed layer needs no conversion.

One file: a header of HEADER_BYTES (magic, version, length, JSON), then the segments "embed", "features" (of a draft
that reads features), "layers.0" ... "head", each at a multiple of 4096. Fields in a segment are 64-byte aligned; every
layer has the same ones at the same offsets.

A linear weight [N, K] lies in panels of 16 outputs, N padded with zeros to a multiple of 16.
int8: groups of 32 inputs, K padded to Kp; "x.w" int8 [Np/16, Kp/2, 16, 2], then "x.scale" float32 [Np/16, Kp/32, 16],
where W[n, k] is about w[n, k] * scale[n, k // 32]. float32: "x.w" float32 [Np/16, K, 16].
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetspec.model.config import ModelConfig
from hetspec.model.cut import NEVER, Cut

PRECISIONS = ("int8", "float32")
LAYOUT_VERSION = 2
MAGIC = b"HETSPACK"
HEADER_BYTES = 65536
PANEL = 16  # outputs a panel
GROUP = 32  # inputs a scale
FFN_MULTIPLE = 64
_SEGMENT_ALIGN = 4096
_FIELD_ALIGN = 64
_PREFIX = struct.Struct("<8sII")  # magic, version, JSON length
_HASH_CHUNK_BYTES = 1 << 22


class PackError(Exception):
    """A pack that is damaged, foreign, or of another layout; one line."""


class Field(NamedTuple):
    offset: int  # bytes from the start of the segment
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape))


class Segment(NamedTuple):
    offset: int  # bytes from the start of the file
    bytes: int


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@dataclass(frozen=True, slots=True)
class PackLayout:
    """Where everything lies: a function of (config, precision) alone.

    segments: by name. fields: by segment kind ("embed", "features", "layer", "head"), then by name.
    """

    config: ModelConfig
    precision: str
    segments: Mapping[str, Segment]
    fields: Mapping[str, Mapping[str, Field]]

    @classmethod
    def of(cls, config: ModelConfig, precision: str) -> PackLayout:
        if precision not in PRECISIONS:
            raise ValueError(f"precision {precision!r}, must be one of {', '.join(PRECISIONS)}")
        features = ("features",) if config.reads_features else ()
        kinds = {kind: _place(_members(kind, config, precision)) for kind in ("embed", *features, "layer", "head")}
        segments: dict[str, Segment] = {}
        offset = HEADER_BYTES
        for name in ("embed", *features, *(f"layers.{i}" for i in range(config.n_layers)), "head"):
            size = max(f.offset + f.bytes for f in kinds[segment_kind(name)].values())
            segments[name] = Segment(offset, round_up(size, _SEGMENT_ALIGN))
            offset += segments[name].bytes
        return cls(config, precision, segments, kinds)

    @property
    def bytes(self) -> int:
        """Of the whole file."""
        last = self.segments["head"]
        return last.offset + last.bytes

    def field(self, kind: str, name: str) -> Field:
        return self.fields[kind][name]

    def views(self, segment: str, buffer: Any) -> dict[str, NDArray[Any]]:
        """The fields of one segment as arrays over `buffer`, which holds that segment from its start."""
        return {
            name: np.ndarray(field.shape, field.dtype, buffer, field.offset)
            for name, field in self.fields[segment_kind(segment)].items()
        }


def segment_kind(segment: str) -> str:
    return "layer" if segment.startswith("layers.") else segment


_Member = tuple[str, str, tuple[int, ...]]  # name, dtype, shape


def _members(kind: str, c: ModelConfig, precision: str) -> Iterator[_Member]:
    if kind == "embed":
        yield "embed", "<f2" if precision == "int8" else "<f4", (c.vocab_size, c.hidden_size)
    elif kind == "features":
        yield "feature_norm", "<f4", (c.hidden_size,)
        yield from _linear("feature_mix", c.hidden_size, c.hidden_size, precision)
    elif kind == "head":
        yield "final_norm", "<f4", (c.hidden_size,)
        yield from _linear("head", c.head_rows, c.hidden_size, precision)
        if c.head_vocab_size:
            yield "ids", "<u4", (c.head_vocab_size,)
    else:
        yield from _layer_members(c, precision)


def _layer_members(c: ModelConfig, precision: str) -> Iterator[_Member]:
    qkv, ffn = c.q_size + 2 * c.kv_size, round_up(c.ffn_size, FFN_MULTIPLE)
    yield "attn_norm", "<f4", (c.hidden_size,)
    if c.qk_norm:
        yield "q_norm", "<f4", (c.head_dim,)
        yield "k_norm", "<f4", (c.head_dim,)
    if c.qkv_bias:
        yield "qkv_bias", "<f4", (qkv,)
    yield "ffn_norm", "<f4", (c.hidden_size,)
    yield from _linear("qkv", qkv, c.hidden_size, precision)
    yield from _linear("o", c.hidden_size, c.q_size, precision)
    yield from _linear("gate_up", 2 * ffn, c.hidden_size, precision)
    yield from _linear("down", c.hidden_size, ffn, precision)


def _linear(name: str, outputs: int, inputs: int, precision: str) -> Iterator[_Member]:
    panels, padded = -(-outputs // PANEL), round_up(inputs, GROUP)
    if precision == "int8":
        yield f"{name}.w", "|i1", (panels, padded // 2, PANEL, 2)
        yield f"{name}.scale", "<f4", (panels, padded // GROUP, PANEL)
    else:
        yield f"{name}.w", "<f4", (panels, inputs, PANEL)


def _place(members: Iterator[_Member]) -> dict[str, Field]:
    fields: dict[str, Field] = {}
    offset = 0
    for name, dtype, shape in members:
        field = Field(round_up(offset, _FIELD_ALIGN), np.dtype(dtype), shape)
        fields[name] = field
        offset = field.offset + field.bytes
    return fields


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack whose header is in order; `verify` checks the rest."""

    path: Path
    layout: PackLayout
    fingerprint: str
    hash: str

    def map(self) -> NDArray[np.uint8]:
        """All of it, read-only. With `read_into` a pack is a `residency.WeightReader`, without a weight store."""
        return np.memmap(self.path, np.uint8, "r")

    def read_into(self, offset: int, buffer: memoryview, _cut: Cut = NEVER) -> None:
        """Fills `buffer` with the bytes from `offset`."""
        with self.path.open("rb", buffering=0) as file:
            file.seek(offset)
            file.readinto(buffer)

    def verify(self) -> None:
        """Raises PackError unless the contents have the header's hash."""
        found = content_hash(self.path, self.layout, self.fingerprint)
        if found != self.hash:
            raise PackError(f"{self.path}: contents have hash {found}, the header says {self.hash}")


def open_pack(path: Path) -> PackFile:
    """Reads and checks the header and the size. Raises PackError; OSError when the file cannot be read."""
    with path.open("rb") as file:
        return parse_header(file.read(HEADER_BYTES), path, path.stat().st_size)


def parse_header(head: bytes, path: Path, size: int) -> PackFile:
    """The pack that begins with `head` (HEADER_BYTES) and is `size` bytes long; `path` is for messages."""
    if len(head) < HEADER_BYTES or head[: len(MAGIC)] != MAGIC:
        raise PackError(f"{path}: not a pack")
    _, version, length = _PREFIX.unpack_from(head)
    if version != LAYOUT_VERSION:
        raise PackError(f"{path}: layout version {version}, must be {LAYOUT_VERSION}")
    try:
        header = json.loads(head[_PREFIX.size : _PREFIX.size + length])
        layout = PackLayout.of(ModelConfig.from_json(json.dumps(header["config"])), header["precision"])
        pack = PackFile(path, layout, str(header["fingerprint"]), str(header["hash"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PackError(f"{path}: damaged header: {error}") from error
    if header.get("segments") != _segments_json(layout) or size != layout.bytes:
        raise PackError(f"{path}: {size} bytes, the header's config needs {layout.bytes}")
    return pack


def build_header(layout: PackLayout, fingerprint: str, digest: str) -> bytes:
    """HEADER_BYTES long."""
    header = {
        "fingerprint": fingerprint,
        "precision": layout.precision,
        "config": json.loads(layout.config.to_json()),
        "segments": _segments_json(layout),
        "hash": digest,
    }
    text = json.dumps(header, sort_keys=True).encode()
    assert _PREFIX.size + len(text) <= HEADER_BYTES
    return (_PREFIX.pack(MAGIC, LAYOUT_VERSION, len(text)) + text).ljust(HEADER_BYTES, b"\0")


def content_hash(path: Path, layout: PackLayout, fingerprint: str) -> str:
    """Of everything that the header names and every byte after it: 32 hexadecimal digits."""
    hasher = hashlib.blake2b(build_header(layout, fingerprint, ""), digest_size=16)
    with path.open("rb", buffering=0) as file:
        file.seek(HEADER_BYTES)
        while chunk := file.read(_HASH_CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()


def _segments_json(layout: PackLayout) -> dict[str, list[int]]:
    return {name: list(segment) for name, segment in layout.segments.items()}
