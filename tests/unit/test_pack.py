"""Packs: the layout by its definition, contents by brute force, and no damage that goes unseen."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from hetspec.model import pack_writer
from hetspec.model.checkpoint import Checkpoint, CheckpointError, open_checkpoint, open_draft
from hetspec.model.pack import GROUP, HEADER_BYTES, PANEL, PackError, PackFile, PackLayout, open_pack
from hetspec.model.pack_writer import quantize, write_pack
from tests.draft_artefact import make_draft
from tests.models import FAMILIES, make_checkpoint

BOTH = pytest.mark.parametrize("precision", ["int8", "float32"])


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(make_checkpoint(tmp_path_factory.mktemp("smollm"), "smollm", gguf=True))


@pytest.fixture(scope="module")
def trimmed(smollm: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A draft for it that reads features and knows 50 ids."""
    return open_draft(make_draft(tmp_path_factory.mktemp("draft"), smollm.path, head_vocab_size=50), smollm)


def views_of(pack: PackFile, segment: str) -> dict[str, Any]:
    offset, size = pack.layout.segments[segment]
    return pack.layout.views(segment, pack.path.read_bytes()[offset : offset + size])


def unpacked(views: dict[str, Any], name: str) -> Any:
    """[Np, Kp] float64, element by element as the layout is defined."""
    weight, scale = views[f"{name}.w"], views.get(f"{name}.scale")
    if scale is None:
        panels, inputs, _ = weight.shape
        return np.array([[weight[n // PANEL, k, n % PANEL] for k in range(inputs)] for n in range(panels * PANEL)])
    panels, pairs = weight.shape[:2]
    out = np.zeros((panels * PANEL, pairs * 2))
    for n, k in itertools.product(range(panels * PANEL), range(pairs * 2)):
        panel, lane = divmod(n, PANEL)
        out[n, k] = float(weight[panel, k // 2, lane, k % 2]) * float(scale[panel, k // GROUP, lane])
    return out


def quantized_by_definition(weight: Any) -> Any:
    """[N, K] float64: each group of inputs rounded to 127ths of its largest magnitude."""
    out = np.zeros(weight.shape)
    for n, start in itertools.product(range(len(weight)), range(0, weight.shape[1], GROUP)):
        group = weight[n, start : start + GROUP]
        scale = np.float32(np.abs(group).max() / np.float32(127))
        if scale:
            out[n, start : start + GROUP] = np.rint(group / scale).astype(np.float64) * np.float64(scale)
    return out


def stored(weight: Any, precision: str) -> Any:
    return quantized_by_definition(weight) if precision == "int8" else weight


@BOTH
@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_holds_what_the_layout_says(family: str, precision: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(make_checkpoint(tmp_path, family))
    config = checkpoint.config
    pack = open_pack(write_pack(checkpoint, precision, tmp_path))
    views = views_of(pack, "layers.1")

    def tensor(name: str) -> Any:
        return checkpoint.tensor(f"layers.1.{name}")

    ffn = -(-config.ffn_size // 64) * 64
    gate_up = np.zeros((2 * ffn, config.hidden_size), np.float32)
    gate_up[: config.ffn_size], gate_up[ffn : ffn + config.ffn_size] = tensor("gate"), tensor("up")
    down = np.zeros((config.hidden_size, ffn), np.float32)
    down[:, : config.ffn_size] = tensor("down")
    linears = {"qkv": np.concatenate([tensor(x) for x in "qkv"]), "o": tensor("o"), "gate_up": gate_up, "down": down}
    for name, weight in linears.items():
        found = unpacked(views, name)
        rows, columns = weight.shape
        np.testing.assert_array_equal(found[:rows, :columns], stored(weight, precision), err_msg=name)
        assert not found[rows:].any()
        assert not found[:, columns:].any()
    vectors = {name: tensor(name) for name in ("attn_norm", "ffn_norm")}
    if config.qkv_bias:
        vectors["qkv_bias"] = np.concatenate([tensor("q_bias"), tensor("k_bias"), tensor("v_bias")])
    if config.qk_norm:
        vectors |= {"q_norm": tensor("q_norm"), "k_norm": tensor("k_norm")}
    for name, vector in vectors.items():
        np.testing.assert_array_equal(views[name], vector, err_msg=name)
    kinds = (".w", ".scale") if precision == "int8" else (".w",)
    assert views.keys() == vectors.keys() | {name + kind for name in linears for kind in kinds}


@BOTH
def test_embedding_and_head_hold_what_the_layout_says(precision: str, smollm: Checkpoint, tmp_path: Path) -> None:
    pack = open_pack(write_pack(smollm, precision, tmp_path))
    embedding = smollm.tensor("embed")
    half = embedding.astype(np.float16 if precision == "int8" else np.float32)
    np.testing.assert_array_equal(views_of(pack, "embed")["embed"], half)
    head = views_of(pack, "head")
    np.testing.assert_array_equal(head["final_norm"], smollm.tensor("final_norm"))
    found = unpacked(head, "head")[: len(embedding), : embedding.shape[1]]
    np.testing.assert_array_equal(found, stored(embedding, precision))


@BOTH
def test_a_drafts_features_and_trimmed_head_hold_what_the_layout_says(
    precision: str, trimmed: Checkpoint, tmp_path: Path
) -> None:
    pack = open_pack(write_pack(trimmed, precision, tmp_path))
    assert list(pack.layout.segments) == ["embed", "features", "layers.0", "head"]
    features, head, size = views_of(pack, "features"), views_of(pack, "head"), trimmed.config.hidden_size
    np.testing.assert_array_equal(features["feature_norm"], trimmed.tensor("feature_norm"))
    found = unpacked(features, "feature_mix")[:size, :size]
    np.testing.assert_array_equal(found, stored(trimmed.tensor("feature_mix"), precision))
    np.testing.assert_array_equal(head["ids"], trimmed.head_ids())
    rows = trimmed.config.head_vocab_size
    np.testing.assert_array_equal(unpacked(head, "head")[:rows, :size], stored(trimmed.tensor("head"), precision))
    half = trimmed.tensor("embed").astype(np.float16 if precision == "int8" else np.float32)
    np.testing.assert_array_equal(views_of(pack, "embed")["embed"], half)


@BOTH
@pytest.mark.parametrize("kind", ["smollm", "trimmed"])
def test_segments_and_fields_are_aligned_and_do_not_overlap(
    precision: str, kind: str, request: pytest.FixtureRequest
) -> None:
    layout = PackLayout.of(request.getfixturevalue(kind).config, precision)
    end = HEADER_BYTES
    for segment in layout.segments.values():
        assert segment.offset == end
        assert segment.offset % 4096 == segment.bytes % 4096 == 0
        end += segment.bytes
    assert layout.bytes == end
    for kind, fields in layout.fields.items():
        end = 0
        for field in fields.values():
            assert field.offset >= end
            assert field.offset % 64 == 0
            end = field.offset + field.bytes
        size = layout.segments["layers.0" if kind == "layer" else kind].bytes
        assert end <= size < end + 4096


def test_an_unknown_precision_is_refused(smollm: Checkpoint) -> None:
    with pytest.raises(ValueError, match="int4"):
        PackLayout.of(smollm.config, "int4")


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2 * GROUP, max_size=2 * GROUP),
)
def test_quantizing_any_numbers_stays_within_half_a_step(values: list[float]) -> None:
    weight = np.array(values, np.float32).reshape(1, -1)
    quantized, scales = quantize(weight)
    assert np.abs(quantized.astype(int)).max() <= 127
    steps = scales.astype(np.float64).repeat(GROUP, axis=1)
    error = np.abs(quantized * steps - weight)
    # Below float32's normal numbers a scale has few bits of its own.
    assert (error <= steps * (0.5 + 127 * 2.0**-22) + 127 * np.finfo(np.float32).tiny).all()


@BOTH
@pytest.mark.parametrize("kind", ["smollm", "trimmed"])
def test_a_pack_is_a_function_of_the_checkpoint_however_it_is_written(
    precision: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = request.getfixturevalue(kind)
    whole = write_pack(checkpoint, precision, tmp_path / "whole")
    monkeypatch.setattr(pack_writer, "_ROWS_AT_ONCE", 2 * PANEL)
    piecewise = write_pack(checkpoint, precision, tmp_path / "piecewise")
    assert whole.name == piecewise.name
    assert whole.read_bytes() == piecewise.read_bytes()


def test_a_sound_pack_is_kept(smollm: Checkpoint, tmp_path: Path) -> None:
    path = write_pack(smollm, "int8", tmp_path)
    os.utime(path, ns=(1, 1))
    assert write_pack(smollm, "int8", tmp_path) == path
    assert path.stat().st_mtime_ns == 1


@pytest.mark.parametrize(
    "damage", ["magic", "version", "json", "config", "hash", "segment", "padding", "cut", "longer"]
)
def test_a_damaged_pack_is_seen_and_made_again(damage: str, smollm: Checkpoint, tmp_path: Path) -> None:
    path = write_pack(smollm, "int8", tmp_path)
    sound = path.read_bytes()
    broken = bytearray(sound)
    places = {"magic": 0, "version": 8, "json": 16, "segment": HEADER_BYTES + 1000, "padding": len(sound) - 1}
    places |= {"config": sound.index(b'"ffn_size": ') + 12, "hash": sound.index(b'"hash": "') + 9}
    if damage in places:
        broken[places[damage]] ^= 1
    path.write_bytes(broken[:-4096] if damage == "cut" else broken + b"x" if damage == "longer" else broken)
    with pytest.raises(PackError, match=path.name):
        open_pack(path).verify()
    assert write_pack(smollm, "int8", tmp_path) == path
    assert path.read_bytes() == sound


def test_a_pack_of_another_checkpoint_in_its_place_is_made_again(smollm: Checkpoint, tmp_path: Path) -> None:
    other = open_checkpoint(make_checkpoint(tmp_path / "other", "smollm", seed=1))
    path, foreign = write_pack(smollm, "int8", tmp_path), write_pack(other, "int8", tmp_path)
    sound = path.read_bytes()
    foreign.replace(path)
    write_pack(smollm, "int8", tmp_path)
    assert path.read_bytes() == sound


@pytest.mark.parametrize(("tensor", "value"), [("model.layers.1.mlp.up_proj.weight", float("inf")), (None, 1e6)])
def test_a_value_that_cannot_be_packed_is_refused_and_leaves_nothing_behind(
    tensor: str | None, value: float, tmp_path: Path
) -> None:
    directory = make_checkpoint(tmp_path / "model", "llama2")
    tensors = load_file(directory / "model.safetensors")
    tensors[tensor or "model.embed_tokens.weight"][0, 0] = value
    save_file(tensors, directory / "model.safetensors")
    cache = tmp_path / "cache"
    with pytest.raises(CheckpointError, match=r"layers\.1\.up|embed"):
        write_pack(open_checkpoint(directory), "int8", cache)
    assert [path for path in cache.iterdir() if path.is_file()] == []


def test_the_header_is_all_a_reader_needs(smollm: Checkpoint, tmp_path: Path) -> None:
    pack = open_pack(write_pack(smollm, "float32", tmp_path))
    pack.verify()
    assert pack.layout == PackLayout.of(smollm.config, "float32")
    assert pack.fingerprint == smollm.fingerprint()
