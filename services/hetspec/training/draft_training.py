"""From a target to a draft folder: gathers a corpus, fits a student, writes and measures it. Every part goes on from
where an earlier run of the same training was ended.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hetspec.model.config import ModelConfig
from hetspec.training.acceptance import Decoding
from hetspec.training.batches import Collator
from hetspec.training.corpus import Corpus, Shard
from hetspec.training.distillation import Course, Distillation
from hetspec.training.draft_folder import write_draft
from hetspec.training.draft_report import DraftReport
from hetspec.training.draft_runtime import OpenDraft
from hetspec.training.errors import TrainingError
from hetspec.training.evaluation import Evaluation, Trial
from hetspec.training.gather import gather
from hetspec.training.generation import Said
from hetspec.training.head_vocabulary import always_known, choose_head_ids, count_tokens
from hetspec.training.held_out import held_out
from hetspec.training.initial import new_student
from hetspec.training.monitor import accept_length
from hetspec.training.progress import Bar, Stages
from hetspec.training.prompt_file import Prompt
from hetspec.training.shard_list import CorpusRecipe, ShardList
from hetspec.training.student import Student
from hetspec.training.talk import ANSWERED
from hetspec.training.target import Target

_SAVE_EVERY_S = 120.0
_LOOKS = 50  # at the held-out texts, in a training
_LOOKED_AT = 24  # texts
_REPORTED = 48  # texts that the report compares along
_DECODED = 12  # of them that are decoded, too
_CHECKPOINT = "student.pt"


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """kind: "features" or "independent". head_tokens: that the head knows; 0: all. rows: of the target's own
    conversations. corpus: a folder of shards to take instead of all of that. work: where what is unfinished is kept.
    """

    target: Path
    out: Path
    work: Path
    cache_dir: Path
    kind: str = "features"
    layers: int = 1
    head_tokens: int = 12_000
    rows: int = 1_000_000
    prompts: tuple[Path, ...] = ()
    texts: tuple[Path, ...] = ()
    corpus: Path | None = None
    max_length: int = 288
    threads: int = 1
    course: Course = Course()
    conversations: int = 192
    report_tokens: int = 64


class DraftTraining:
    def __init__(self, plan: DraftPlan, stages: Stages) -> None:
        """Raises CheckpointError, OSError, TrainingError."""
        self._plan = plan
        self._stages = stages
        self._target = Target.open(plan.target, plan.cache_dir)
        config = self._target.checkpoint.config
        if not 1 <= plan.layers <= config.n_layers:
            raise TrainingError(f"layers = {plan.layers}, must be in [1, {config.n_layers}], as many as the target has")
        self._always = always_known(self._target.text)
        if 0 < plan.head_tokens < len(self._always):
            least = f"must be 0 or at least {len(self._always)}, for the tokens of the chat template"
            raise TrainingError(f"head tokens = {plan.head_tokens}, {least}")

    def run(self) -> DraftReport:
        torch.set_num_threads(self._plan.threads)
        shards = self._shards()
        head_ids = self._head_ids(shards)
        student = self._fit(shards, head_ids)
        write_draft(self._plan.out, student, head_ids, self._target)
        report = self._report(shards)
        (self._plan.out / "report.json").write_text(json.dumps(report.to_json(), indent=2) + "\n")
        return report

    def _shards(self) -> list[Shard]:
        plan, target = self._plan, self._target
        if plan.corpus is not None:
            shards = Corpus(plan.corpus).shards()
        else:
            recipe = CorpusRecipe(
                plan.target, plan.cache_dir, plan.course.seed, plan.prompts, plan.texts, plan.conversations
            )
            corpus = Corpus(plan.work / "corpus")
            there = sum(shard.rows for shard in ShardList(recipe, target).chosen(corpus, plan.rows))
            with self._stages.stage("gathering", max(plan.rows, there), "rows", there) as bar:
                shards = gather(corpus, recipe, target, plan.rows, plan.threads, bar.advance)
        if not shards:
            raise TrainingError("there is nothing to learn from: give --rows, --prompts, --text or --corpus")
        return shards

    def _head_ids(self, shards: Sequence[Shard]) -> NDArray[np.int64]:
        size, wanted = self._target.checkpoint.config.vocab_size, self._plan.head_tokens
        if not 0 < wanted < size:
            return np.arange(size, dtype=np.int64)
        counts = count_tokens(chain.from_iterable(shard.read() for shard in shards), size)
        return choose_head_ids(counts, wanted, self._always)

    def _config(self, head_tokens: int) -> ModelConfig:
        """The target's shape, a few layers high."""
        target, plan = self._target.checkpoint.config, self._plan
        return replace(
            target,
            name=f"{target.name} draft",
            n_layers=plan.layers,
            qkv_bias=False,
            qk_norm=False,
            tied_head=False,
            head_vocab_size=head_tokens if head_tokens < target.vocab_size else 0,
            reads_features=plan.kind == "features",
        )

    def _fit(self, shards: Sequence[Shard], head_ids: NDArray[np.int64]) -> Student:
        plan, config = self._plan, self._config(len(head_ids))
        texts = held_out(shards, _LOOKED_AT)
        some = next(shards[0].read())
        if some.hidden.shape[1] != config.hidden_size:
            raise TrainingError(f"{shards[0].path}: rows of {some.hidden.shape[1]}, must be {config.hidden_size}")
        sizes = np.sqrt(np.mean(np.square(some.hidden.astype(np.float32)), axis=1))
        scale = float(np.median(sizes))  # the first row of a text is often far larger than the others
        student = new_student(config, self._target.checkpoint, head_ids, scale, plan.course.seed)
        collator = Collator(head_ids, config.vocab_size, plan.max_length, int(config.reads_features))
        fitting = Distillation(student, shards, collator, plan.course, self._identity(shards, config))
        checkpoint = plan.work / _CHECKPOINT
        plan.work.mkdir(parents=True, exist_ok=True)
        if checkpoint.exists():
            fitting.load(checkpoint)
        total = float(sum(shard.rows for shard in shards) * plan.course.epochs)
        with self._stages.stage("training", total, "rows", fitting.done * total) as bar:
            self._train(fitting, texts, collator, bar, total)
        return student

    def _train(self, fitting: Distillation, texts: Sequence[Said], collator: Collator, bar: Bar, total: float) -> None:
        checkpoint, saved = self._plan.work / _CHECKPOINT, time.monotonic()
        done, note, looks = fitting.done, "", int(fitting.done * _LOOKS)
        for step in fitting.steps():
            if int(step.done * _LOOKS) > looks:
                looks += 1
                length = accept_length(fitting.student, texts, collator, self._plan.course.loss.steps)
                note = f", held out {length:.2f} tokens a chain"
            bar.advance((step.done - done) * total, f"step {step.number}, loss {step.loss:.3f}{note}")
            done = step.done
            if time.monotonic() - saved > _SAVE_EVERY_S:
                fitting.save(checkpoint)
                saved = time.monotonic()
        fitting.save(checkpoint)

    def _identity(self, shards: Sequence[Shard], config: ModelConfig) -> str:
        plan = self._plan
        names = [shard.path.name for shard in shards]
        told = [self._target.fingerprint, config.to_json(), asdict(plan.course), plan.max_length, names]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

    def _report(self, shards: Sequence[Shard]) -> DraftReport:
        """On conversations that were held out."""
        plan = self._plan
        texts = held_out(shards, _REPORTED)
        if not texts:
            raise TrainingError("no conversation was held out to measure on: there are too few of them")
        prompts = [Prompt(tuple(one.tokens[: _answer_start(one)].tolist()), "held out") for one in texts[:_DECODED]]
        draft = OpenDraft.open(plan.out, self._target, plan.cache_dir)
        trial = Trial(Decoding(plan.report_tokens, 0.0, plan.course.seed), threads=plan.threads)
        return Evaluation(self._target, draft, trial, self._stages).report(prompts, texts)


def _answer_start(one: Said) -> int:
    return int(np.argmax(one.origins == ANSWERED))
