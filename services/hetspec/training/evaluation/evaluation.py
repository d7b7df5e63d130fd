"""Measures a draft model on what serves it, and reports."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.training.corpus.prompts import Prompt
from hetspec.training.corpus.said import Said
from hetspec.training.evaluation.acceptance import Acceptance, Shapes
from hetspec.training.evaluation.agreement import Agreement
from hetspec.training.evaluation.passes import Passes
from hetspec.training.evaluation.report import DraftReport
from hetspec.training.evaluation.step_cost import measure_cost
from hetspec.training.evaluation.teacher_forced import TeacherForced
from hetspec.training.progress import Stages
from hetspec.training.speculation.answers import AT_ONCE, Answer, Answerer, Question
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft
from hetspec.training.target import Target

_PASS_ROWS = 256
_SLACK = 64  # a page that a tree begins


@dataclass(frozen=True, slots=True)
class Decoding:
    max_tokens: int
    temperature: float
    seed: int

    def question(self, place: int, prompt: Prompt) -> Question:
        """place: of the prompt among the others; each has its own noise."""
        return Question(prompt.ids, self.max_tokens, Sampling(self.temperature), NoiseKey(self.seed + place))


@dataclass(frozen=True, slots=True)
class Trial:
    """shapes: of what is drafted; the agreement is measured over the steps of a chain."""

    decoding: Decoding
    shapes: Shapes = Shapes()
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
        answers = self._answers(prompts)
        said = [answer.said() for answer in answers] if texts is None else texts
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
            steps=self._agreement(said),
            acceptance=self._acceptance(prompts, answers),
            cost=measure_cost(self._target, self._draft, trial.threads),
        )

    def _answers(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """The shortest first, so that those side by side are about equally long; in the order of the prompts."""
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place].ids))
        found: dict[int, Answer] = {}
        answerer = Answerer.open(self._target, threads=self._trial.threads, max_context=self._longest(prompts))
        with closing(answerer), self._stages.stage("answering", len(prompts), "prompts") as bar:
            for i in range(0, len(order), AT_ONCE):
                some = order[i : i + AT_ONCE]
                asked = [self._trial.decoding.question(place, prompts[place]) for place in some]
                found.update(zip(some, answerer.answer(asked), strict=True))
                bar.advance(len(some))
        return [found[place] for place in range(len(prompts))]

    def _agreement(self, texts: Sequence[Said]) -> list[Agreement]:
        longest = max(map(len, texts))
        measured = TeacherForced(self._target, self._draft, threads=self._trial.threads, max_tokens=longest + 1)
        with closing(measured), self._stages.stage("comparing", len(texts), "texts") as bar:
            return measured.measure(texts, self._trial.shapes.depth, bar.advance)

    def _acceptance(self, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> dict[str, dict[str, Passes]]:
        trial, longest = self._trial, self._longest(prompts)
        rows = max(_PASS_ROWS, trial.shapes.nodes + 1)
        kv_tokens = longest + 2 * trial.shapes.nodes + _SLACK
        parts = DraftParts(self._draft, threads=trial.threads, max_rows=rows, max_context=longest, kv_tokens=kv_tokens)
        measured = Acceptance(parts.model(self._draft.barred), self._draft.checkpoint.head_ids(), trial.shapes)
        with closing(parts), self._stages.stage("drafting", len(prompts), "prompts") as bar:
            for prompt, answer in zip(prompts, answers, strict=True):
                measured.add(prompt.category, answer)
                bar.advance()
        return measured.found

    def _longest(self, prompts: Sequence[Prompt]) -> int:
        """Tokens of a prompt with its answer."""
        wanted = max(len(prompt.ids) for prompt in prompts) + self._trial.decoding.max_tokens + 1
        return min(wanted, self._target.checkpoint.config.max_context)
