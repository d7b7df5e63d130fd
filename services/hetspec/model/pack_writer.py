"""Writes packs: layer by layer into a mapped temporary file, so that memory holds little more than one tensor."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.model.checkpoint import Checkpoint, CheckpointError
from hetspec.model.pack import (
    GROUP,
    LAYOUT_VERSION,
    PANEL,
    PackError,
    PackLayout,
    build_header,
    content_hash,
    open_pack,
    round_up,
)

_ROWS_AT_ONCE = 8192  # of the embedding and the head; a multiple of PANEL
Views = dict[str, NDArray[Any]]


def write_pack(checkpoint: Checkpoint, precision: str, cache_dir: Path) -> Path:
    """The checkpoint's pack in `cache_dir`: the one that is there if it is sound, else a new one. Written atomically.

    Raises CheckpointError (contents that cannot be packed), OSError (no space, no permission).
    """
    layout = PackLayout.of(checkpoint.config, precision)
    fingerprint = checkpoint.fingerprint(cache_dir)
    path = cache_dir / f"{fingerprint}-{precision}-v{LAYOUT_VERSION}.pack"
    if not _is_sound(path, layout, fingerprint):
        cache_dir.mkdir(parents=True, exist_ok=True)
        _write(checkpoint, layout, fingerprint, path)
    return path


def _is_sound(path: Path, layout: PackLayout, fingerprint: str) -> bool:
    try:
        pack = open_pack(path)
        pack.verify()
    except (PackError, FileNotFoundError):
        return False
    named = replace(layout.config, name=pack.layout.config.name)
    return pack.fingerprint == fingerprint and pack.layout.precision == layout.precision and pack.layout.config == named


def _write(checkpoint: Checkpoint, layout: PackLayout, fingerprint: str, path: Path) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, layout.bytes)  # a full disk is an error here, not a SIGBUS later
            _fill(checkpoint, layout, temporary)
            digest = content_hash(temporary, layout, fingerprint)
            file.write(build_header(layout, fingerprint, digest))
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        _sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fill(checkpoint: Checkpoint, layout: PackLayout, path: Path) -> None:
    for name, segment in layout.segments.items():
        memory = np.memmap(path, np.uint8, "r+", segment.offset, (segment.bytes,))
        views = layout.views(name, memory)
        if name == "embed":
            _fill_embed(checkpoint, views)
        elif name == "features":
            _fill_features(checkpoint, views)
        elif name == "head":
            _fill_head(checkpoint, views)
        else:
            _fill_layer(checkpoint, name, views)
        memory.flush()


def _chunks(rows: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + _ROWS_AT_ONCE, rows)) for start in range(0, rows, _ROWS_AT_ONCE))


def _fill_embed(checkpoint: Checkpoint, views: Views) -> None:
    out = views["embed"]
    limit = np.finfo(out.dtype).max
    for start, stop in _chunks(len(out)):
        rows = checkpoint.rows("embed", start, stop)
        if np.abs(rows).max() > limit:
            raise CheckpointError(f"{checkpoint.path}: tensor embed has a value beyond {out.dtype}'s range")
        out[start:stop] = rows


def _fill_features(checkpoint: Checkpoint, views: Views) -> None:
    views["feature_norm"][:] = checkpoint.tensor("feature_norm")
    _put_linear(views, "feature_mix", checkpoint.tensor("feature_mix"))


def _fill_head(checkpoint: Checkpoint, views: Views) -> None:
    views["final_norm"][:] = checkpoint.tensor("final_norm")
    for start, stop in _chunks(checkpoint.config.head_rows):
        _put_linear(views, "head", checkpoint.rows("head", start, stop), start)
    if "ids" in views:
        views["ids"][:] = checkpoint.head_ids()


def _fill_layer(checkpoint: Checkpoint, layer: str, views: Views) -> None:
    def tensor(name: str) -> NDArray[np.float32]:
        return checkpoint.tensor(f"{layer}.{name}")

    for name in ("attn_norm", "ffn_norm", "q_norm", "k_norm"):
        if name in views:
            views[name][:] = tensor(name)
    if "qkv_bias" in views:
        views["qkv_bias"][:] = np.concatenate([tensor("q_bias"), tensor("k_bias"), tensor("v_bias")])
    _put_linear(views, "qkv", np.concatenate([tensor("q"), tensor("k"), tensor("v")]))
    _put_linear(views, "o", tensor("o"))
    ffn = views["gate_up.w"].shape[0] * PANEL // 2  # with padding
    _put_linear(views, "gate_up", _padded(tensor("gate"), ffn))
    _put_linear(views, "gate_up", _padded(tensor("up"), ffn), ffn)
    _put_linear(views, "down", tensor("down"))


def _put_linear(views: Views, name: str, weight: NDArray[np.float32], row: int = 0) -> None:
    """Packs `weight` [N, K] as outputs row .. row + N of the linear `name`. `row` is a multiple of PANEL."""
    panels = slice(row // PANEL, -(-(row + len(weight)) // PANEL))
    out = views[f"{name}.w"][panels]
    scale = views.get(f"{name}.scale")
    if scale is None:
        inputs = out.shape[1]
        padded = _padded(weight, round_up(len(weight), PANEL), inputs)
        out[:] = padded.reshape(-1, PANEL, inputs).swapaxes(1, 2)
        return
    padded = _padded(weight, round_up(len(weight), PANEL), 2 * out.shape[1])
    quantized, scales = quantize(padded)
    out[:] = quantized.reshape(-1, PANEL, out.shape[1], 2).swapaxes(1, 2)
    scale[panels] = scales.reshape(-1, PANEL, scale.shape[1]).swapaxes(1, 2)


def quantize(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """float32 [N, K], K a multiple of GROUP -> int8 [N, K] within 127, and a float32 scale a group: [N, K / GROUP]."""
    groups = weight.reshape(len(weight), -1, GROUP)
    scales = np.maximum(groups.max(axis=2), -groups.min(axis=2)) / np.float32(127)
    divisors = np.where(scales == 0, np.float32(np.inf), scales)
    steps = groups / divisors[:, :, None]
    np.rint(steps, out=steps)
    np.clip(steps, -127, 127, out=steps)  # a subnormal scale has few bits: a quotient may be beyond 127
    return steps.astype(np.int8).reshape(weight.shape), scales


def _padded(weight: NDArray[np.float32], rows: int, columns: int = 0) -> NDArray[np.float32]:
    """`weight` with zeros below and to the right."""
    shape = (rows, columns or weight.shape[1])
    if weight.shape == shape:
        return weight
    out = np.zeros(shape, np.float32)
    out[: weight.shape[0], : weight.shape[1]] = weight
    return out
