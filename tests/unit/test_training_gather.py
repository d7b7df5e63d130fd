"""hetspec.training.corpus.generation and gather: what a target says, and that nothing but the seed decides it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from hetspec.training.corpus.gather import gather
from hetspec.training.corpus.generation import Generator
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.shard_list import CorpusRecipe, ShardList
from hetspec.training.corpus.shards import Corpus
from hetspec.training.corpus.talk import ANSWERED, ASKED, GIVEN, READ, Frame
from hetspec.training.errors import TrainingError
from hetspec.training.target import Target
from tests.models import make_checkpoint

PROMPTS = '{"prompt": "The quick brown"}\n{"turns": ["Why does the dog not mind?"]}\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gather")


@pytest.fixture(scope="module")
def recipe(folder: Path) -> CorpusRecipe:
    (folder / "prompts.jsonl").write_text(PROMPTS)
    (folder / "text.txt").write_text("The fox jumps over the lazy dog, and 日本語. " * 20)
    target = make_checkpoint(folder / "target", "llama3")
    files = ((folder / "prompts.jsonl",), (folder / "text.txt",))
    return CorpusRecipe(target, folder / "packs", 0, *files, conversations=3)


@pytest.fixture(scope="module")
def target(recipe: CorpusRecipe) -> Target:
    return Target.open(recipe.target, recipe.cache_dir, "float32")


@pytest.fixture(scope="module")
def shards(recipe: CorpusRecipe, target: Target) -> ShardList:
    return ShardList(recipe, target)


@pytest.fixture(scope="module")
def hear(target: Target, shards: ShardList) -> Iterator[object]:
    generator = Generator(target, at_once=2)
    yield lambda name: generator.hear(shards.talks(name))
    generator.close()


def equal(left: Said, right: Said) -> bool:
    fields = ("tokens", "origins", "hidden", "top_ids", "top_logprobs")
    return all(np.array_equal(getattr(left, field), getattr(right, field)) for field in fields)


@torch.no_grad()
def test_rows_and_best_tokens_are_transformers(hear, recipe):
    model = transformers.AutoModelForCausalLM.from_pretrained(recipe.target, dtype=torch.float32).eval()
    model.model.norm, norm = torch.nn.Identity(), model.model.norm
    for name in ("own-00000", "prompts-00000", "text-00000"):
        for one in hear(name):
            hidden = model.model(torch.from_numpy(one.tokens.astype(np.int64))[None]).last_hidden_state
            np.testing.assert_allclose(one.hidden, hidden[0], rtol=1e-3, atol=1e-3)
            logprobs = model.lm_head(norm(hidden))[0].log_softmax(-1).numpy()
            asked = np.isfinite(one.top_logprobs[:, 0])
            best = np.take_along_axis(logprobs, one.top_ids.astype(np.int64), 1)
            np.testing.assert_allclose(one.top_logprobs[asked], best[asked], rtol=5e-3, atol=5e-3)
            np.testing.assert_allclose(best[asked, 0], logprobs[asked].max(1), rtol=1e-3, atol=1e-3)


def test_conversations_do_not_depend_on_how_many_go_on_side_by_side(hear, target, shards):
    generator = Generator(target, at_once=3)
    for name in ("own-00001", "prompts-00000", "text-00000"):
        assert all(map(equal, hear(name), generator.hear(shards.talks(name))))
    generator.close()


def test_greedy_answers_are_the_best_tokens_and_warm_ones_are_not(hear):
    said = [one for number in range(4) for one in hear(f"own-{number:05d}")]
    assert {one.temperature for one in said} > {0.0}
    for one in said:
        answered = np.flatnonzero(one.origins[1:] == ANSWERED)
        best = one.top_ids[answered, 0] == one.tokens[answered + 1]
        assert best.all() if one.temperature == 0 else not best.all()


def test_origins_tell_what_was_given_asked_answered_and_read(hear, target):
    frame = Frame.of(target.text)
    for one in hear("own-00000"):
        assert one.tokens[: len(frame.head)].tolist() == list(frame.head)
        assert set(one.origins[: len(frame.head)].tolist()) == {GIVEN}
        assert {ASKED, ANSWERED} >= set(one.origins.tolist()) - {GIVEN}
    for one in hear("prompts-00000"):
        assert set(one.origins.tolist()) == {GIVEN, ANSWERED}
    for one in hear("text-00000"):
        assert set(one.origins.tolist()) == {READ}
        assert np.isfinite(one.top_logprobs[:, 0]).all()


def test_shards_do_not_depend_on_workers_or_interruptions(recipe, target, folder):
    """One worker makes all; two make what is left of it, after one shard was lost."""
    target = Target.open(recipe.target, recipe.cache_dir)
    counted: list[int] = []
    first = gather(Corpus(folder / "one"), recipe, target, 800, 1, counted.append)
    assert {shard.name for shard in first} >= {"prompts-00000", "text-00000", "own-00000", "own-00001"}
    assert sum(counted) == sum(shard.rows for shard in first)
    second = Corpus(folder / "two")
    second.folder.mkdir()
    for name in ("recipe", first[0].path.name, first[-1].path.name):
        (second.folder / name).write_bytes((folder / "one" / name).read_bytes())
    again = gather(second, recipe, target, 800, 2, counted.append)
    assert [shard.path.name for shard in again] == [shard.path.name for shard in first]
    for mine, theirs in zip(first, again, strict=True):
        assert mine.path.read_bytes() == theirs.path.read_bytes()


def test_folder_of_another_seed_is_refused(recipe, target, folder):
    corpus = Corpus(folder / "other")
    gather(corpus, replace(recipe, prompts=(), texts=()), target, 0, 1, lambda rows: None)
    with pytest.raises(TrainingError, match="holds conversations of another target, seed, or other files"):
        gather(corpus, replace(recipe, prompts=(), texts=(), seed=1), target, 0, 1, lambda rows: None)
