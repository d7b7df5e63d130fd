"""hetspec.training.draft.distillation and what feeds it, on conversations made up at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hetspec.training.corpus.choosing import TOP
from hetspec.training.corpus.held_out import held_out, is_held_out
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.shards import Corpus
from hetspec.training.corpus.talk import ANSWERED, ASKED, GIVEN
from hetspec.training.draft.batches import Collator, deal
from hetspec.training.draft.distillation import Course, Distillation
from hetspec.training.draft.head_vocabulary import choose_head_ids, count_tokens
from hetspec.training.draft.loss import LossOptions
from hetspec.training.draft.student import Student
from hetspec.training.errors import TrainingError
from tests.packs import TINY

HEAD_IDS = np.arange(0, TINY.vocab_size, 2)
CONFIG = replace(TINY, n_layers=1, reads_features=True, head_vocab_size=len(HEAD_IDS))
COURSE = Course(epochs=2, batch_rows=60, loss=LossOptions(steps=2, sampled=5, feature_weight=0.1))


def say(rng: np.random.Generator, length: int) -> Said:
    """Half of it given, half answered, with what a teacher thought of every position."""
    logprobs = np.log(rng.dirichlet(np.ones(TOP), length)).astype(np.float16)
    top_ids = np.stack([rng.permutation(TINY.vocab_size)[:TOP] for _ in range(length)]).astype(np.int32)
    return Said(
        rng.integers(TINY.vocab_size, size=length).astype(np.uint32),
        np.repeat([GIVEN, ANSWERED], [length // 2, length - length // 2]).astype(np.uint8),
        rng.normal(size=(length, TINY.hidden_size)).astype(np.float16),
        top_ids,
        -np.sort(-logprobs, axis=1),
        0.0,
    )  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Six shards: more than are dealt together."""
    made, rng = Corpus(tmp_path / "corpus"), np.random.default_rng(0)
    for number in range(6):
        made.add(f"own-{number:05d}", [say(rng, int(rng.integers(4, 24))) for _ in range(10)])
    return made


@pytest.fixture
def begin(corpus: Corpus) -> Callable[..., Distillation]:
    def begin(course: Course = COURSE, identity: str = "this one") -> Distillation:
        torch.manual_seed(0)
        student = Student(CONFIG, torch.randn(TINY.vocab_size, TINY.hidden_size))
        collator = Collator(HEAD_IDS, TINY.vocab_size, max_length=20, first=1)
        return Distillation(student, corpus.shards(), collator, course, identity)

    return begin


def weights(fitting: Distillation) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in fitting.student.state_dict().items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("interrupted_after", [1, 3, 9])
def test_training_that_goes_on_from_a_checkpoint_comes_to_the_same_weights(begin, interrupted_after, tmp_path):
    whole = begin()
    steps = list(whole.steps())
    assert len(steps) > 12

    ended = begin()
    for step in ended.steps():
        if step.number == interrupted_after:
            break
    ended.save(tmp_path / "student.pt")
    for _ in zip(range(2), ended.steps(), strict=False):
        pass  # what is lost with the interruption

    resumed = begin()
    resumed.load(tmp_path / "student.pt")
    assert list(resumed.steps()) == steps[interrupted_after:]
    assert same(weights(whole), weights(resumed))


def test_seed_decides_the_weights(begin):
    trained = []
    for seed in (0, 0, 1):
        fitting = begin(replace(COURSE, seed=seed, epochs=1))
        list(fitting.steps())
        trained.append(weights(fitting))
    assert same(trained[0], trained[1])
    assert not same(trained[0], trained[2])


def test_training_lowers_the_loss(begin):
    losses = [step.loss for step in begin(replace(COURSE, epochs=30)).steps()]
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])


def test_checkpoint_of_another_training_is_refused(begin, tmp_path):
    begin().save(tmp_path / "student.pt")
    with pytest.raises(TrainingError, match="a checkpoint of another training"):
        begin(identity="another one").load(tmp_path / "student.pt")


def test_every_conversation_is_dealt_once_and_batches_hold_what_was_asked_for():
    rng = np.random.default_rng(0)
    said = [say(rng, int(rng.integers(4, 40))) for _ in range(200)]
    dealt = deal(said, 30, 120, np.random.default_rng(1))
    assert sorted(id(one) for batch in dealt for one in batch) == sorted(map(id, said))
    for batch in dealt:
        assert len(batch) == 1 or len(batch) * max(min(len(one), 30) for one in batch) <= 120 * 1.25


def test_collated_positions_stand_for_the_conversations_rows():
    rng = np.random.default_rng(0)
    one, other = say(rng, 9), say(rng, 5)
    one.origins[3] = ASKED
    batch = Collator(HEAD_IDS, TINY.vocab_size, max_length=8, first=1).collate([one, other])
    assert batch.tokens.shape == (2, 7)
    assert batch.tokens[0].tolist() == one.tokens[1:8].tolist()
    for position in range(7):
        row = position + 1
        assert np.array_equal(batch.features[0, position], one.hidden[row - 1].astype(np.float32))
        for rank, (token, logprob) in enumerate(zip(one.top_ids[row], one.top_logprobs[row], strict=True)):
            known = token % 2 == 0
            assert batch.teacher[0, position, rank] == (np.exp(np.float32(logprob)) if known else 0)
            assert not known or HEAD_IDS[batch.teacher_ids[0, position, rank]] == token
        wanted = {GIVEN: 0.0, ASKED: 0.3, ANSWERED: 1.0}[int(one.origins[row + 1])]
        assert batch.weights[0, position] == pytest.approx(wanted)
    assert batch.tokens[1].tolist() == [*other.tokens[1:].tolist(), 0, 0, 0]
    assert batch.weights[1, 4:].tolist() == [0.0] * 3


def test_shards_give_back_what_was_put_in(corpus):
    rng = np.random.default_rng(5)
    said = [say(rng, 4), say(rng, 7)]
    shard = corpus.add("more-00000", said)
    assert (shard.name, shard.rows) == ("more-00000", 11)
    for mine, theirs in zip(said, shard.read(), strict=True):
        for field in ("tokens", "origins", "hidden", "top_ids", "top_logprobs"):
            assert np.array_equal(getattr(mine, field), getattr(theirs, field))


def test_file_that_is_no_shard_is_named(corpus):
    (corpus.folder / "x-5.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(TrainingError, match=r"x-5\.npz: not a shard"):
        list(corpus.shards()[-1].read())


def test_about_one_conversation_in_fifty_is_held_out_and_it_is_never_trained_on(corpus, begin, monkeypatch):
    rng = np.random.default_rng(0)
    many = [say(rng, 4) for _ in range(4000)]
    kept = [is_held_out(one) for one in many]
    assert 40 < sum(kept) < 130
    assert kept == [is_held_out(one) for one in many]
    shard = corpus.add("zz-00000", many)
    withheld = {one.tokens.tobytes() for one in held_out([shard], 10_000)}
    assert len(withheld) == sum(kept)
    seen: set[bytes] = set()
    collate = Collator.collate

    def watched(self, said):
        seen.update(one.tokens.tobytes() for one in said)
        return collate(self, said)

    monkeypatch.setattr(Collator, "collate", watched)
    list(begin(replace(COURSE, epochs=1, batch_rows=2000)).steps())
    assert seen
    assert not seen & withheld


def test_head_knows_the_most_frequent_tokens_and_those_it_must():
    rng = np.random.default_rng(0)
    said = [say(rng, 30) for _ in range(20)]
    counts = count_tokens(said, TINY.vocab_size)
    assert counts.tolist() == [sum((one.tokens == token).sum() for one in said) for token in range(TINY.vocab_size)]
    rarest = int(counts.argmin())
    ids = choose_head_ids(counts, 10, [rarest])
    assert len(ids) == 10
    assert rarest in ids
    assert (np.diff(ids) > 0).all()
    others = np.setdiff1d(ids, [rarest])
    assert counts[others].min() >= np.delete(counts, ids).max()
