"""The text part of a Hugging Face directory is what transformers makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer

from hetspec.model.checkpoint import CheckpointError
from hetspec.model.checkpoint.hf_text import text_from_hf
from hetspec.text.text_spec import TextSpec
from tests.models import FAMILIES, make_checkpoint


def edit(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**data, **changes}))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path, "qwen2")


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_template_and_bos_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path, family)
    spec = text_from_hf(directory, 1000)
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    assert spec.chat_template == reference.chat_template
    assert spec.bos_id == reference.bos_token_id
    assert spec.end_ids == (reference.eos_token_id,)
    assert {"bos_token", "eos_token"} <= spec.special_tokens.keys()
    assert spec.special_tokens.items() <= reference.special_tokens_map.items()
    assert spec.add_bos == (reference.encode("x")[0] == reference.bos_token_id)
    text = "Hello, 123 wörld <|im_end|></s>"
    ids = Tokenizer.from_str(spec.tokenizer_json).encode(text, add_special_tokens=False).ids
    assert ids == reference.encode(text, add_special_tokens=False)


def test_every_end_that_the_generation_config_lists_ends_an_answer(directory: Path) -> None:
    edit(directory / "generation_config.json", eos_token_id=[5, 1])
    assert text_from_hf(directory, 384).end_ids == (1, 2, 5)


def test_without_a_generation_config_the_models_own_ends_count(directory: Path) -> None:
    (directory / "generation_config.json").unlink()
    edit(directory / "config.json", eos_token_id=7)
    assert text_from_hf(directory, 384).end_ids == (2, 7)


@pytest.mark.parametrize("eos", [384, -1, "2", 1.5, [None, "x"]])
def test_an_end_that_is_no_id_is_refused(eos: Any, directory: Path) -> None:
    edit(directory / "generation_config.json", eos_token_id=eos)
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id"):
        text_from_hf(directory, 384)


def test_a_template_in_the_tokenizer_config_is_found_also_among_several(directory: Path) -> None:
    (directory / "chat_template.jinja").unlink()
    assert text_from_hf(directory, 384).chat_template == ""
    edit(directory / "tokenizer_config.json", chat_template="one")
    assert text_from_hf(directory, 384).chat_template == "one"
    several = [{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]
    edit(directory / "tokenizer_config.json", chat_template=several)
    assert text_from_hf(directory, 384).chat_template == "three"


def test_special_tokens_written_as_objects_are_understood(directory: Path) -> None:
    edit(directory / "tokenizer_config.json", eos_token={"content": "<|endoftext|>", "lstrip": False})
    assert text_from_hf(directory, 384).special_tokens["eos_token"] == "<|endoftext|>"


def test_more_token_ids_than_the_model_has_are_refused(directory: Path) -> None:
    with pytest.raises(CheckpointError, match="the model has 100 ids"):
        text_from_hf(directory, 100)


def test_the_wire_gives_back_an_equal_spec(directory: Path) -> None:
    spec = text_from_hf(directory, 384)
    assert TextSpec.from_pb(spec.to_pb()) == spec
    bare = TextSpec("{}")
    assert TextSpec.from_pb(bare.to_pb()) == bare
