"""hetspec.training.draft.student, against transformers' Llama and against the kernels that serve what was trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from hetspec.model.checkpoint.draft_checkpoint import DraftCheckpoint
from hetspec.model.config import ModelConfig
from hetspec.training.corpus.choosing import TOP
from hetspec.training.corpus.said import Said
from hetspec.training.draft.averaging import average_drafts
from hetspec.training.draft.folder import write_draft
from hetspec.training.draft.initial import continued_student, new_student
from hetspec.training.draft.student import Student
from hetspec.training.errors import TrainingError
from hetspec.training.evaluation.follow import Follower
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.target import Target
from tests.models import make_checkpoint

LENGTH, STEPS = 9, 4
SHAPE = ModelConfig(
    family="llama", name="student", vocab_size=50, hidden_size=32, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8,
    ffn_size=48, max_context=64, rope_theta=100.0, rms_eps=1e-5, reads_features=True,
)  # fmt: skip


def random_student(config: ModelConfig) -> Student:
    generator = torch.Generator().manual_seed(0)
    student = Student(config, torch.randn(config.vocab_size, config.hidden_size, generator=generator))
    with torch.no_grad():
        for parameter in student.parameters():
            centre = 1.0 if parameter.ndim == 1 else 0.0
            parameter.copy_(centre + 0.2 * torch.randn(parameter.shape, generator=generator))
    return student


def transformers_layers(student: Student) -> transformers.LlamaModel:
    """The student's layers as a Llama that is given embeddings, without its norm at the end."""
    config = student.config
    llama = transformers.LlamaModel(
        transformers.LlamaConfig(
            vocab_size=4, hidden_size=config.hidden_size, intermediate_size=config.ffn_size,
            num_hidden_layers=config.n_layers, num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv_heads, rms_norm_eps=config.rms_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        )
    ).eval()  # fmt: skip
    llama.norm = torch.nn.Identity()
    for mine, theirs in zip(student.layers, llama.layers, strict=True):
        for name in "qkvo":
            getattr(theirs.self_attn, f"{name}_proj").weight = getattr(mine, name).weight
        for name in ("gate", "up", "down"):
            getattr(theirs.mlp, f"{name}_proj").weight = getattr(mine, name).weight
        theirs.input_layernorm.weight, theirs.post_attention_layernorm.weight = mine.attn_norm, mine.ffn_norm
    return llama


@torch.no_grad()
def test_chains_behind_all_positions_are_those_drafted_one_by_one():
    student = random_student(SHAPE)
    llama = transformers_layers(student)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(SHAPE.vocab_size, (1, LENGTH), generator=generator)
    features = torch.randn(1, LENGTH, SHAPE.hidden_size, generator=generator)
    outputs = student.unroll(tokens, features, STEPS)
    for start in range(LENGTH - STEPS + 1):
        rows = [student.read(tokens[:, : start + 1], features[:, : start + 1])]
        for step in range(STEPS):
            last = llama(inputs_embeds=torch.cat(rows, 1)).last_hidden_state[:, -1:]
            torch.testing.assert_close(outputs[step][:, start], last[:, 0], rtol=1e-4, atol=1e-4)
            if step + 1 < STEPS:
                rows.append(student.read(tokens[:, start + step + 1, None], last))


@pytest.mark.parametrize(("kind", "head_tokens"), [("features", 60), ("features", 0), ("independent", 60)])
def test_what_was_trained_is_what_is_served(kind: str, head_tokens: int, tmp_path: Path):
    """The student, written as a draft folder and run by the kernels in float32, says the same along a text."""
    cache = tmp_path / "packs"
    target = Target.open(make_checkpoint(tmp_path / "target", "llama3"), cache, "float32")
    config = target.checkpoint.config
    rng = np.random.default_rng(0)
    size = head_tokens or config.vocab_size
    head_ids = np.sort(rng.permutation(config.vocab_size)[:size])
    student = new_student(_draft_of(config, kind, head_tokens), target.checkpoint, head_ids, 0.7, seed=0)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.copy_(parameter.half())  # what the folder holds
    write_draft(tmp_path / "draft", student, head_ids, target)

    said = _random_text(rng, config)
    follower = Follower(OpenDraft.open(tmp_path / "draft", target, cache), threads=1, max_tokens=LENGTH + 8)
    first = int(kind == "features")
    theirs = _unrolled(student, said, first)
    found = list(follower.follow(said, range(LENGTH), STEPS))
    follower.close()
    assert [one.step for one in found] == list(range(STEPS))
    for one in found:
        starts = one.rows - one.step
        assert starts.tolist() == list(range(first, LENGTH - one.step))
        np.testing.assert_allclose(one.logits, theirs[one.step][starts - first], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("layers", "left"), [(2, range(60)), (3, range(60)), (2, range(1, 60, 3))])
def test_a_draft_that_is_trained_on_begins_as_it_was_whatever_is_added_or_left_out(layers: int, left, tmp_path: Path):
    target = Target.open(make_checkpoint(tmp_path / "target", "llama3"), tmp_path / "packs", "float32")
    config = _draft_of(target.checkpoint.config, "features", 60)
    trained = new_student(config, target.checkpoint, np.arange(60), 0.7, seed=0)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.copy_((parameter + 0.1 * torch.randn(parameter.shape)).half())  # what the folder holds
    write_draft(tmp_path / "draft", trained, np.arange(60), target)

    draft = DraftCheckpoint(tmp_path / "draft", target.checkpoint)
    longer = replace(config, n_layers=layers, head_vocab_size=len(left))
    student = continued_student(longer, draft, np.array(left), target.checkpoint)
    said = _random_text(np.random.default_rng(0), config)
    for mine, theirs in zip(_unrolled(student, said, 1), _unrolled(trained, said, 1), strict=True):
        np.testing.assert_allclose(mine, theirs[:, list(left)], rtol=0, atol=1e-6 * (len(left) < 60))


def test_an_average_has_the_mean_of_all_weights_and_the_tokens_that_all_know(tmp_path: Path):
    target = Target.open(make_checkpoint(tmp_path / "target", "llama3"), tmp_path / "packs", "float32")
    heads = [np.arange(60), np.arange(10, 80)]
    for place, head_ids in enumerate(heads):
        config = _draft_of(target.checkpoint.config, "features", len(head_ids))
        student = new_student(config, target.checkpoint, head_ids, 0.7, seed=place)
        with torch.no_grad():
            student.feature_norm.mul_(1 + place)
        write_draft(tmp_path / str(place), student, head_ids, target)
    average_drafts([tmp_path / "0", tmp_path / "1"], tmp_path / "mean", target, tmp_path)
    first, second, mean = (DraftCheckpoint(tmp_path / name, target.checkpoint) for name in ("0", "1", "mean"))
    assert mean.head_ids().tolist() == list(range(10, 60))
    np.testing.assert_allclose(
        mean.tensor("head"), (first.tensor("head")[10:] + second.tensor("head")[:50]) / 2, atol=1e-3
    )
    for name in ("feature_norm", "feature_mix", "embed_mix", "layers.1.down"):
        size = len(mean.rows(name, 0, mean.config.hidden_size))
        one, other = (draft.rows(name, 0, size) for draft in (first, second))
        np.testing.assert_allclose(mean.rows(name, 0, size), (one + other) / 2, rtol=2e-3, atol=1e-4)


def test_drafts_of_different_shapes_have_no_average(tmp_path: Path):
    target = Target.open(make_checkpoint(tmp_path / "target", "llama3"), tmp_path / "packs", "float32")
    for layers in (1, 2):
        config = replace(_draft_of(target.checkpoint.config, "features", 60), n_layers=layers)
        write_draft(
            tmp_path / str(layers), new_student(config, target.checkpoint, np.arange(60), 0.7, 0), np.arange(60), target
        )
    with pytest.raises(TrainingError, match="of another shape"):
        average_drafts([tmp_path / "1", tmp_path / "2"], tmp_path / "mean", target, tmp_path)


def _draft_of(target: ModelConfig, kind: str, head_tokens: int) -> ModelConfig:
    is_fed = kind == "features"
    return replace(target, name="draft", n_layers=2, head_vocab_size=head_tokens, reads_features=is_fed)


def _random_text(rng: np.random.Generator, config: ModelConfig) -> Said:
    hidden = rng.normal(size=(LENGTH, config.hidden_size)).astype(np.float32)
    ids = rng.integers(config.vocab_size, size=LENGTH).astype(np.uint32)
    nothing = np.zeros((LENGTH, TOP))
    return Said(ids, np.zeros(LENGTH, np.uint8), hidden, nothing.astype(np.int32), nothing.astype(np.float16), 0.0)


@torch.no_grad()
def _unrolled(student: Student, said: Said, first: int) -> list[np.ndarray]:
    tokens = torch.from_numpy(said.tokens[first:].astype(np.int64))[None]
    features = torch.from_numpy(said.hidden[: LENGTH - 1])[None] if first else None
    return [student.logits(output[0]).numpy() for output in student.unroll(tokens, features, STEPS)]
