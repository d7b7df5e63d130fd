"""Checkpoints: canonical tensors are the reference's, and no broken file passes or breaks anything."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from hetspec.model.checkpoint import CheckpointError, open_checkpoint
from hetspec.model.checkpoint.base import Checkpoint, expected_shapes
from tests.models import FAMILIES, make_checkpoint

CANONICAL = {
    "model.embed_tokens.weight": "embed",
    "model.norm.weight": "final_norm",
    "lm_head.weight": "head",
    "input_layernorm.weight": "attn_norm",
    "post_attention_layernorm.weight": "ffn_norm",
    **{f"self_attn.{x}_proj.weight": x for x in "qkvo"},
    **{f"self_attn.{x}_proj.bias": f"{x}_bias" for x in "qkv"},
    **{f"self_attn.{x}_norm.weight": f"{x}_norm" for x in "qk"},
    **{f"mlp.{x}_proj.weight": x for x in ("gate", "up", "down")},
}


def canonical(name: str) -> str:
    if not name.startswith("model.layers."):
        return CANONICAL[name]
    _, _, layer, member = name.split(".", 3)
    return f"layers.{layer}.{CANONICAL[member]}"


def reference_tensors(directory: Path) -> dict[str, Any]:
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype="float32")
    return {canonical(name): tensor.numpy() for name, tensor in model.state_dict().items()}


def assert_equal_tensors(checkpoint: Checkpoint, reference: dict[str, Any]) -> None:
    for name, tensor in reference.items():
        ours = checkpoint.tensor(name)
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, tensor, err_msg=name)
    assert {name for name, _ in expected_shapes(checkpoint.config)} | {"head"} == reference.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_and_config_of_both_formats_are_the_references(family: str, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "hf", family)
    of_hf, of_gguf = open_checkpoint(directory), open_checkpoint(make_checkpoint(tmp_path, family, gguf=True))
    reference = reference_tensors(directory)
    assert_equal_tensors(of_hf, reference)
    assert_equal_tensors(of_gguf, reference)
    np.testing.assert_allclose(of_gguf.config.inv_freq(), of_hf.config.inv_freq(), rtol=1e-6)
    same: dict[str, Any] = {"name": "x", "rope_scaling": None, "family": "llama"}
    if family == "mistral":  # the converter does not write the window down
        same["max_context"] = 256
    assert replace(of_gguf.config, **same) == replace(of_hf.config, **same)


@pytest.mark.parametrize("family", FAMILIES)
def test_gguf_tensors_are_those_that_transformers_reads_from_the_same_file(family: str, tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, family, gguf=True)
    with torch.device("meta"):
        config = transformers.AutoConfig.from_pretrained(tmp_path, gguf_file=path.name)
        model = transformers.AutoModelForCausalLM.from_config(config)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    checkpoint = open_checkpoint(path)
    assert len(tensors) == len(list(expected_shapes(checkpoint.config)))
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(checkpoint.tensor(canonical(name)), tensor.numpy(), err_msg=name)


@pytest.mark.parametrize("tied", [False, True])
def test_a_tied_head_is_the_embedding_and_an_untied_one_its_own(tied: bool, tmp_path: Path) -> None:
    for path in (
        make_checkpoint(tmp_path / "hf", "qwen3", tie_word_embeddings=tied),
        make_checkpoint(tmp_path, "qwen3", gguf=True, tie_word_embeddings=tied),
    ):
        checkpoint = open_checkpoint(path)
        assert checkpoint.config.tied_head == tied
        assert np.array_equal(checkpoint.tensor("head"), checkpoint.tensor("embed")) == tied


def test_shards_hold_the_same_model_as_one_file(tmp_path: Path) -> None:
    whole = open_checkpoint(make_checkpoint(tmp_path / "whole", "llama3"))
    sharded = open_checkpoint(make_checkpoint(tmp_path / "sharded", "llama3", max_shard_size="100KB"))
    assert len(list((tmp_path / "sharded").glob("model-*.safetensors"))) > 2
    for name, _ in expected_shapes(whole.config):
        np.testing.assert_array_equal(whole.tensor(name), sharded.tensor(name))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_safetensors_widen_exactly(dtype: str, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, "qwen2", dtype=dtype)
    assert_equal_tensors(open_checkpoint(directory), reference_tensors(directory))


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_gguf_formats_decode_to_what_was_encoded(kind: str, tmp_path: Path) -> None:
    exact = open_checkpoint(make_checkpoint(tmp_path / "exact", "qwen2", gguf=True))
    coded = open_checkpoint(make_checkpoint(tmp_path / "coded", "qwen2", gguf=True, tensor_type=kind))
    for name, shape in expected_shapes(exact.config):
        expected = exact.tensor(name)
        if len(shape) == 2:
            code = gguf.GGMLQuantizationType[kind]
            expected = gguf.quants.dequantize(gguf.quants.quantize(expected, code), code)
        np.testing.assert_array_equal(coded.tensor(name), expected)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_k_quants_decode_row_by_row_as_the_reader_of_the_gguf_package_sees_them(kind: str, tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path, "qwen2", gguf=True, hidden_size=256, intermediate_size=512)
    path = tmp_path / "k.gguf"
    rewrite_gguf(source, path, lambda name, values: random_blocks(name, values, gguf.GGMLQuantizationType[kind]))
    checkpoint = open_checkpoint(path)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for stored, name in (("blk.1.ffn_down.weight", "layers.1.down"), ("blk.0.attn_k.weight", "layers.0.k")):
        expected = gguf.quants.dequantize(tensors[stored].data, tensors[stored].tensor_type)
        np.testing.assert_array_equal(checkpoint.tensor(name), expected)
        np.testing.assert_array_equal(checkpoint.rows(name, 3, 7), expected[3:7])


def random_blocks(name: str, values: Any, kind: gguf.GGMLQuantizationType) -> tuple[Any, gguf.GGMLQuantizationType]:
    """Arbitrary blocks with scales that are ordinary numbers."""
    if values.ndim != 2:
        return values, gguf.GGMLQuantizationType.F32
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = values.shape
    raw = np.random.default_rng(len(name)).integers(0, 60, (rows, columns // block * size), dtype=np.uint8)
    return raw, kind


def rewrite_gguf(
    source: Path, target: Path, change: Callable[[str, Any], Any], metadata: dict[str, Any] | None = None
) -> None:
    """Copies a float32 GGUF file; `change` gives each tensor as (data, kind), or None to leave it out."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, entry in reader.fields.items():
        if not name.startswith("GGUF.") and name not in {"general.architecture", *(metadata or {})}:
            kind = entry.types[0]
            writer.add_key_value(name, entry.contents(), kind, entry.types[-1] if len(entry.types) > 1 else None)
    for name, value in (metadata or {}).items():
        kinds = {str: gguf.GGUFValueType.STRING, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}
        writer.add_key_value(name, value, kinds[type(value)])
    for tensor in reader.tensors:
        changed = change(tensor.name, tensor.data)
        if changed is not None:
            data, kind = changed
            writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Broken files.


def assert_refused(path: Path, *named: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    message = str(caught.value)
    assert "\n" not in message
    for part in (path.name, *named):
        assert part in message


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("gguf"), "llama3", gguf=True)


@pytest.fixture(scope="module")
def tiny_hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("hf"), "qwen2", tie_word_embeddings=False)


def test_a_gguf_file_cut_anywhere_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    data = tiny_gguf.read_bytes()
    cuts = [*range(40), *random.Random(0).sample(range(40, len(data)), 160), len(data) - 1]
    for cut in cuts:
        path = tmp_path / "cut.gguf"
        path.write_bytes(data[:cut])
        assert_refused(path)


def test_a_gguf_tensor_that_does_not_lie_after_the_one_before_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    reader = gguf.GGUFReader(tiny_gguf)
    tensor = reader.tensors[3]
    data = bytearray(tiny_gguf.read_bytes())
    position = tensor.field.offset + sum(part.nbytes for part in tensor.field.parts) - 8
    data[position : position + 8] = int(tensor.field.parts[-1][0] + 32).to_bytes(8, "little")
    path = tmp_path / "moved.gguf"
    path.write_bytes(data)
    assert_refused(path, tensor.name, str(tensor.data_offset), str(tensor.data_offset + 32))


def test_a_gguf_file_with_bytes_left_over_is_refused(tiny_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "longer.gguf"
    path.write_bytes(tiny_gguf.read_bytes() + b"x")
    assert_refused(path, str(tiny_gguf.stat().st_size))


def test_one_part_of_a_split_gguf_file_is_refused_with_what_to_do(tiny_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "part.gguf"
    rewrite_gguf(tiny_gguf, path, lambda _, values: (values, gguf.GGMLQuantizationType.F32), {"split.count": 3})
    assert_refused(path, "3 parts")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_count", 8),
        ("llama.attn_logit_softcapping", 30.0),
        ("llama.rope.scaling.type", "yarn"),
        ("llama.rope.dimension_count", 8),
        ("llama.surprise", 1),
        ("llama.block_count", "two"),
        ("llama.block_count", 5000),
        ("llama.attention.head_count_kv", 3),
    ],
)
def test_gguf_metadata_that_mean_another_computation_are_refused_by_name(
    key: str, value: Any, tiny_gguf: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other.gguf"
    rewrite_gguf(tiny_gguf, path, lambda _, values: (values, gguf.GGMLQuantizationType.F32), {key: value})
    named = {"rope.scaling.type": "yarn", "head_count_kv": "n_kv_heads", "block_count": "n_layers"}
    short = key.removeprefix("llama.").removeprefix("attention.")
    assert_refused(path, key if value == "two" else named.get(short, key))


@pytest.mark.parametrize(
    ("metadata", "reference"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scale_linear": 4.0}, 4.0),
        ({"llama.rope.scaling.type": "none"}, 1.0),
    ],
)
def test_linear_rope_scaling_of_a_gguf_file_divides_all_frequencies(
    metadata: dict[str, Any], reference: float, tmp_path: Path
) -> None:
    source, path = make_checkpoint(tmp_path, "llama2", gguf=True), tmp_path / "scaled.gguf"
    rewrite_gguf(source, path, lambda _, values: (values, gguf.GGMLQuantizationType.F32), metadata)
    plain, scaled = open_checkpoint(source).config.inv_freq(), open_checkpoint(path).config.inv_freq()
    np.testing.assert_array_equal(scaled, plain / np.float32(reference))


def test_a_sliding_window_in_gguf_metadata_caps_the_context(tiny_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "window.gguf"
    window = {"llama.attention.sliding_window": 100}
    rewrite_gguf(tiny_gguf, path, lambda _, values: (values, gguf.GGMLQuantizationType.F32), window)
    assert open_checkpoint(path).config.max_context == 100


def header_bytes(path: Path) -> int:
    if path.suffix == ".gguf":
        return min(tensor.data_offset for tensor in gguf.GGUFReader(path).tensors)
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


def try_every_tensor(path: Path) -> None:
    """A flipped byte may leave a valid file; then everything in it can be read."""
    try:
        checkpoint = open_checkpoint(path)
        for name, _ in expected_shapes(checkpoint.config):
            checkpoint.tensor(name)
    except CheckpointError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_no_flipped_byte_in_a_gguf_header_gets_past_the_checks_as_another_error(
    tiny_gguf: Path, tmp_path: Path
) -> None:
    data = tiny_gguf.read_bytes()
    generator = random.Random(1)
    path = tmp_path / "flipped.gguf"
    # All of the counts and the first keys, and a sample of the rest.
    for position in [*range(300), *generator.sample(range(300, header_bytes(tiny_gguf)), 300)]:
        broken = bytearray(data)
        broken[position] ^= generator.randrange(1, 256)
        path.write_bytes(broken)
        try_every_tensor(path)


def copy_of(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / "copy"))


def test_a_safetensors_file_cut_anywhere_is_refused(tiny_hf: Path, tmp_path: Path) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    path = directory / "model.safetensors"
    data = path.read_bytes()
    for cut in [*range(20), *random.Random(0).sample(range(20, len(data)), 80), len(data) - 1]:
        path.write_bytes(data[:cut])
        assert_refused(directory, "model.safetensors")


def test_no_flipped_byte_in_a_safetensors_header_gets_past_the_checks_as_another_error(
    tiny_hf: Path, tmp_path: Path
) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    path = directory / "model.safetensors"
    data = path.read_bytes()
    generator = random.Random(2)
    for position in [*range(60), *generator.sample(range(60, header_bytes(path)), 200)]:
        broken = bytearray(data)
        broken[position] ^= generator.randrange(1, 256)
        path.write_bytes(broken)
        try_every_tensor(directory)


JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
NOT_OBJECTS = ("", "{", "[]", "\udcff")


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name in JSON_FILES for text in NOT_OBJECTS]
    + [("config.json", '{"version": 1}'), ("tokenizer.json", '{"version": 1}')],
)
def test_a_broken_json_file_is_refused_by_its_name(name: str, text: str, tiny_hf: Path, tmp_path: Path) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    (directory / name).write_bytes(text.encode(errors="surrogateescape"))
    assert_refused(directory, name)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json"])
def test_no_flipped_byte_in_a_json_file_gets_past_the_checks_as_another_error(
    name: str, tiny_hf: Path, tmp_path: Path
) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    data = (directory / name).read_bytes()
    generator = random.Random(3)
    for position in range(0, len(data), 4):
        broken = bytearray(data)
        broken[position] = generator.choice(b'019-.eE[]{}",:ntf\xff')
        (directory / name).write_bytes(broken)
        try_every_tensor(directory)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a pickle in a zip", b"\x00" * 4096])
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    assert_refused(path)


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "nothing.gguf")


def test_a_directory_with_pickled_weights_only_is_refused(tiny_hf: Path, tmp_path: Path) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    assert_refused(directory, "model.safetensors")


def change_tensors(directory: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


V = "model.layers.1.self_attn.v_proj.weight"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.pop(V), [V, "missing"]),
        (lambda t: t.update({V: t[V].T.contiguous()}), [V, "[64, 32]", "[32, 64]"]),
        (lambda t: t.update({"model.layers.1.mlp.extra.weight": torch.ones(1)}), ["mlp.extra", "not known"]),
        (lambda t: t.update({V: t[V].to(torch.int8)}), [V, "I8"]),
        (lambda t: t.update({"model.layers.7.mlp.up_proj.weight": torch.ones(1)}), ["layers.7", "not known"]),
    ],
)
def test_safetensors_that_do_not_fit_the_config_are_refused_by_the_name_of_the_tensor(
    change: Callable[[dict[str, Any]], Any], named: list[str], tiny_hf: Path, tmp_path: Path
) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    change_tensors(directory, change)
    assert_refused(directory, *named)


@pytest.mark.parametrize(
    ("changed", "data", "problem"),
    [
        ("blk.1.attn_v.weight", None, "missing"),
        ("blk.1.attn_v.weight", np.ones((64, 32), np.float32), "[64, 32]"),
        ("blk.0.attn_norm.weight", np.ones(8, np.float32), "[8]"),
        ("output_norm.weight", None, "missing"),
        ("token_embd.weight", None, "missing"),
    ],
)
def test_gguf_tensors_that_do_not_fit_the_metadata_are_refused_by_name(
    changed: str, data: Any, problem: str, tiny_gguf: Path, tmp_path: Path
) -> None:
    path = tmp_path / "changed.gguf"
    f32 = gguf.GGMLQuantizationType.F32

    def change(name: str, values: Any) -> Any:
        return (values, f32) if name != changed else None if data is None else (data, f32)

    rewrite_gguf(tiny_gguf, path, change)
    assert_refused(path, changed, problem)


def test_harmless_leftovers_of_old_converters_are_passed_over(tiny_hf: Path, tmp_path: Path) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    change_tensors(directory, lambda tensors: tensors.update({name: torch.ones(8)}))
    assert open_checkpoint(directory).config.n_layers == 2


def test_a_stored_head_beside_a_tied_one_must_be_the_embedding(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, "smollm")
    embedding = load_file(directory / "model.safetensors")["model.embed_tokens.weight"]
    change_tensors(directory, lambda tensors: tensors.update({"lm_head.weight": embedding.clone()}))
    assert open_checkpoint(directory).config.tied_head
    change_tensors(directory, lambda tensors: tensors.update({"lm_head.weight": embedding + 1}))
    assert_refused(directory, "lm_head.weight", "ties")


def test_a_weight_that_is_not_finite_is_refused_when_it_is_read(tiny_hf: Path, tmp_path: Path) -> None:
    directory = copy_of(tiny_hf, tmp_path)
    change_tensors(directory, lambda tensors: tensors[V].__setitem__((3, 5), float("nan")))
    checkpoint = open_checkpoint(directory)
    with pytest.raises(CheckpointError, match=r"layers\.1\.v"):
        checkpoint.tensor("layers.1.v")


def test_an_index_that_points_outside_its_directory_is_refused(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, "llama3", max_shard_size="100KB")
    index = directory / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["weight_map"]["lm_head.weight"] = "../elsewhere.safetensors"
    index.write_text(json.dumps(data))
    assert_refused(directory, index.name, "elsewhere")


def test_a_missing_shard_is_refused_by_its_name(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, "llama3", max_shard_size="100KB")
    shard = sorted(directory.glob("model-*.safetensors"))[1]
    shard.unlink()
    assert_refused(directory, shard.name)


@pytest.mark.parametrize("name", ["embd", "layers.2.q", "layers.0.q_norm", "layers.x.q", "layers.0.q.weight"])
def test_a_tensor_name_that_the_config_does_not_have_is_a_key_error(name: str, tiny_gguf: Path) -> None:
    with pytest.raises(KeyError):
        open_checkpoint(tiny_gguf).tensor(name)


def test_fingerprints_name_contents_not_places(tiny_gguf: Path, tiny_hf: Path, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copy(tiny_gguf, tmp_path / "other.gguf"))
    assert open_checkpoint(elsewhere).fingerprint() == open_checkpoint(tiny_gguf).fingerprint(tmp_path / "cache")
    assert open_checkpoint(copy_of(tiny_hf, tmp_path)).fingerprint() == open_checkpoint(tiny_hf).fingerprint()
    data = bytearray(elsewhere.read_bytes())
    data[-1] ^= 1
    elsewhere.write_bytes(data)
    assert open_checkpoint(elsewhere).fingerprint() != open_checkpoint(tiny_gguf).fingerprint()


def test_a_remembered_fingerprint_is_forgotten_when_the_file_is_written_to(tiny_gguf: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(tiny_gguf, tmp_path / "model.gguf"))
    first = open_checkpoint(path).fingerprint(tmp_path)
    assert open_checkpoint(path).fingerprint(tmp_path) == first
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert open_checkpoint(path).fingerprint(tmp_path) == open_checkpoint(path).fingerprint() != first
