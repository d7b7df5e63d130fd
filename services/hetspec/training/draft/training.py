"""From a target to a draft folder: gathers a corpus, fits a student, writes and measures it. Every part goes on from
where an earlier run of the same training was ended.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hetspec.model.checkpoint.draft_checkpoint import DraftCheckpoint
from hetspec.model.config import ModelConfig
from hetspec.training.corpus.gather import gather
from hetspec.training.corpus.held_out import held_out
from hetspec.training.corpus.prompts import Prompt
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.shard_list import ShardList
from hetspec.training.corpus.shards import Corpus, Shard
from hetspec.training.corpus.talk import ANSWERED
from hetspec.training.draft.batches import Collator
from hetspec.training.draft.distillation import Distillation
from hetspec.training.draft.folder import write_draft
from hetspec.training.draft.head_vocabulary import always_known, choose_head_ids, count_tokens
from hetspec.training.draft.initial import continued_student, new_student
from hetspec.training.draft.monitor import accept_length
from hetspec.training.draft.plan import USUAL_HEAD, DraftPlan
from hetspec.training.draft.student import Student
from hetspec.training.errors import TrainingError
from hetspec.training.evaluation.evaluation import Decoding, Evaluation, Trial
from hetspec.training.evaluation.report import DraftReport
from hetspec.training.progress import Bar, Stages
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.target import Target

_SAVE_EVERY_S = 120.0
_LOOKS = 50  # at the held-out texts, in a training
_LOOKED_AT = 24  # texts
_REPORTED = 48  # texts that the report compares along
_DECODED = 12  # of them that are decoded, too
_CHECKPOINT = "student.pt"


class DraftTraining:
    def __init__(self, plan: DraftPlan, stages: Stages) -> None:
        """Raises CheckpointError, OSError, TrainingError."""
        self._plan = plan
        self._stages = stages
        self._target = Target.open(plan.target, plan.cache_dir)
        self._begun = self._open_begun()
        self._check_layers()
        self._always = always_known(self._target.text)
        if plan.head_tokens is not None and 0 < plan.head_tokens < len(self._always):
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
            recipe, corpus = plan.recipe(), Corpus(plan.work / "corpus")
            there = sum(shard.rows for shard in ShardList(recipe, target).chosen(corpus, plan.rows))
            with self._stages.stage("gathering", max(plan.rows, there), "rows", there) as bar:
                shards = gather(corpus, recipe, target, plan.rows, plan.threads, bar.advance)
        if not shards:
            raise TrainingError("there is nothing to learn from: give --rows, --prompts, --text or --corpus")
        return shards

    def _open_begun(self) -> DraftCheckpoint | None:
        plan = self._plan
        if plan.begin_from is None:
            return None
        return DraftCheckpoint(plan.begin_from, self._target.checkpoint, plan.cache_dir)

    def _check_layers(self) -> None:
        least = self._begun.config.n_layers if self._begun else 1
        most = self._target.checkpoint.config.n_layers
        if self._plan.layers is not None and not least <= self._plan.layers <= most:
            bound = f"must be in [{least}, {most}]: no fewer than what it begins from, no more than the target has"
            raise TrainingError(f"layers = {self._plan.layers}, {bound}")

    def _head_ids(self, shards: Sequence[Shard]) -> NDArray[np.int64]:
        size, wanted = self._target.checkpoint.config.vocab_size, self._plan.head_tokens
        known = np.arange(size, dtype=np.int64)
        if self._begun is not None:
            known = self._begun.head_ids().astype(np.int64)
        elif wanted is None:
            wanted = USUAL_HEAD
        if not wanted or wanted >= len(known):
            return known
        counts = count_tokens(chain.from_iterable(shard.read() for shard in shards), size)
        return known[choose_head_ids(counts[known], wanted, np.searchsorted(known, self._always).tolist())]

    def _fit(self, shards: Sequence[Shard], head_ids: NDArray[np.int64]) -> Student:
        plan, target = self._plan, self._target.checkpoint
        config = plan.model(target.config, len(head_ids), self._begun.config if self._begun else None)
        texts = held_out(shards, _LOOKED_AT)
        some = next(shards[0].read())
        if some.hidden.shape[1] != config.hidden_size:
            raise TrainingError(f"{shards[0].path}: rows of {some.hidden.shape[1]}, must be {config.hidden_size}")
        student = self._student(config, head_ids, some)
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

    def _student(self, config: ModelConfig, head_ids: NDArray[np.int64], some: Said) -> Student:
        target = self._target.checkpoint
        if self._begun is not None:
            return continued_student(config, self._begun, head_ids, target)
        sizes = np.sqrt(np.mean(np.square(some.hidden.astype(np.float32)), axis=1))
        scale = float(np.median(sizes))  # the first row of a text is often far larger than the others
        return new_student(config, target, head_ids, scale, self._plan.course.seed)

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
        told: list[Any] = [self._target.fingerprint, config.to_json(), asdict(plan.course), plan.max_length, names]
        told += [self._begun.fingerprint()] if self._begun else []
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
