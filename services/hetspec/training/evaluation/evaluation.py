"""Measures a draft model on what serves it, and reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hetspec.training.corpus.generation import Generator
from hetspec.training.corpus.prompts import Prompt
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.talk import Talk
from hetspec.training.evaluation.acceptance import Decoding, Passes, measure_acceptance, ways
from hetspec.training.evaluation.agreement import Agreement
from hetspec.training.evaluation.report import DraftReport
from hetspec.training.evaluation.step_cost import measure_cost
from hetspec.training.evaluation.teacher_forced import TeacherForced
from hetspec.training.progress import Stages
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.speculation.open_speculator import open_speculator
from hetspec.training.target import Target

_AT_ONCE = 16  # prompts that are answered side by side


@dataclass(frozen=True, slots=True)
class Trial:
    """depth: draft steps that are measured, and the length of a chain. nodes: of a tree."""

    decoding: Decoding
    depth: int = 5
    nodes: int = 32
    threads: int = 1


class Evaluation:
    """Of a draft against its target."""

    def __init__(self, target: Target, draft: OpenDraft, trial: Trial, stages: Stages) -> None:
        self._target = target
        self._draft = draft
        self._trial = trial
        self._stages = stages

    def report(self, prompts: Sequence[Prompt], texts: Sequence[Said] | None = None) -> DraftReport:
        """texts: to compare along; None: what the target answers to the prompts."""
        config, trial = self._draft.checkpoint.config, self._trial
        return DraftReport(
            target=self._target.checkpoint.config.name,
            draft=config.name,
            kind="features" if config.reads_features else "independent",
            layers=config.n_layers,
            head_tokens=config.head_rows,
            parameters=self._draft.own_parameters(),
            temperature=trial.decoding.temperature,
            max_tokens=trial.decoding.max_tokens,
            prompts=len(prompts),
            threads=trial.threads,
            steps=self._agreement(prompts, texts),
            acceptance=self._acceptance(prompts),
            cost=measure_cost(self._target, self._draft, trial.threads),
        )

    def _agreement(self, prompts: Sequence[Prompt], texts: Sequence[Said] | None) -> list[Agreement]:
        longest = max(map(len, texts)) if texts else self._longest(prompts)
        told = self._answers(prompts, longest) if texts is None else texts
        measured = TeacherForced(self._target, self._draft, threads=self._trial.threads, max_tokens=longest + 1)
        try:
            with self._stages.stage("comparing", len(prompts) if texts is None else len(texts), "texts") as bar:
                return measured.measure(told, self._trial.depth, bar.advance)
        finally:
            measured.close()

    def _answers(self, prompts: Sequence[Prompt], longest: int) -> Iterator[Said]:
        generator = Generator(self._target, threads=self._trial.threads, at_once=_AT_ONCE, max_tokens=longest)
        end_ids, decoding = frozenset(self._target.text.spec.end_ids), self._trial.decoding
        try:
            for i in range(0, len(prompts), _AT_ONCE):
                talks: list[Talk] = []
                for place, prompt in enumerate(prompts[i : i + _AT_ONCE], start=i):
                    rng = np.random.default_rng([decoding.seed, place])
                    talks.append(Talk(rng, decoding.temperature, decoding.max_tokens, end_ids, is_answering=True))
                    talks[-1].give(prompt.ids)
                yield from generator.hear(talks)
        finally:
            generator.close()

    def _acceptance(self, prompts: Sequence[Prompt]) -> dict[str, dict[str, Passes]]:
        trial, longest = self._trial, self._longest(prompts)
        policies = ways(trial.depth, trial.nodes)
        speculator = open_speculator(
            self._target, self._draft, threads=trial.threads, max_context=longest, max_nodes=trial.nodes
        )
        try:
            with self._stages.stage("decoding", len(prompts), "prompts") as bar:
                return measure_acceptance(speculator, prompts, policies, trial.decoding, bar.advance)
        finally:
            speculator.close()

    def _longest(self, prompts: Iterable[Prompt]) -> int:
        """Tokens of a prompt with its answer."""
        wanted = max(len(prompt.ids) for prompt in prompts) + self._trial.decoding.max_tokens + 1
        return min(wanted, self._target.checkpoint.config.max_context)
