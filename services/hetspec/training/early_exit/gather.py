"""Gathers trees of prompts: those of a file, or user turns that the target writes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.model.forward import PAGE
from hetspec.model.transformer import Transformer
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.corpus.generation import Generator
from hetspec.training.corpus.prompts import NO_CATEGORY, Prompt
from hetspec.training.corpus.talk import ANSWERED
from hetspec.training.corpus.talks import Talks
from hetspec.training.early_exit.data import Texts, Trees
from hetspec.training.early_exit.reader import Reader
from hetspec.training.errors import TrainingError
from hetspec.training.speculation.answers import AT_ONCE, Answer, Answerer, Question
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft
from hetspec.training.speculation.replay import ReplayedRound, replay
from hetspec.training.target import Target
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

TEMPERATURES = (0.0, 0.0, 0.8)
"""Of the prompts' answers, by turns."""

_WRITTEN_AT_ONCE = 24  # user turns that are written side by side
_CONTEXT_TOKENS = 1024  # of a prompt with its answer
_PASS_ROWS = 256


@dataclass(frozen=True, slots=True)
class Growing:
    """How trees are grown: nodes and depth of one, tokens of an answer, the noise's seed."""

    nodes: int = 32
    depth: int = 5
    max_tokens: int = 48
    seed: int = 0
    threads: int = 1

    @property
    def policy(self) -> DraftPolicy:
        width = max(1, min(8, self.nodes // 4))
        return DraftPolicy(self.nodes, self.depth, width, (DRAFT_SOURCE_MODEL, DRAFT_SOURCE_LOOKUP))

    def question(self, number: int, prompt: Prompt) -> Question:
        """Of the prompt of that number."""
        return Question(prompt.ids, self.max_tokens, Sampling(temperature_of(number)), NoiseKey(self.seed + number))


def temperature_of(number: int) -> float:
    """Of the answer to the prompt of that number."""
    return TEMPERATURES[number % len(TEMPERATURES)]


def nothing(prompt: int) -> bool:
    return False


class TreeGatherer:
    """Grows trees along the target's own answers, with its rows after some layers and what it chooses behind each node.
    Closes what it opens: use it with `with`.
    """

    def __init__(
        self,
        target: Target,
        draft: OpenDraft,
        growing: Growing,
        layers: Sequence[int],
        keeps_text: Callable[[int], bool] = nothing,
    ) -> None:
        """keeps_text: of the prompt of that number, with its answer."""
        self._growing, self._keeps_text = growing, keeps_text
        self._room = room = min(_CONTEXT_TOKENS, target.checkpoint.config.max_context)
        nodes, threads = growing.nodes, growing.threads
        self._answerer = Answerer.open(target, threads=threads, max_context=room)
        self._reader = Reader.open(target, self._answerer, layers, threads=threads, max_context=room, max_nodes=nodes)
        rows, kv_tokens = max(_PASS_ROWS, nodes + 1), room + 2 * nodes + PAGE
        parts = DraftParts(draft, threads=threads, max_rows=rows, max_context=room, kv_tokens=kv_tokens)
        self._draft = parts.model(draft.barred)
        self._trees: list[Trees] = []
        self._texts: list[Texts] = []

    @property
    def target(self) -> Transformer:
        return self._reader.model

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in (self._answerer, self._reader, self._draft):
            part.close()

    def gather(self, prompts: Iterator[Prompt], rounds: int | None, on_trees: Callable[[int], None]) -> list[Prompt]:
        """Until there are so many trees, or the prompts end; returns those that were used, by their numbers.

        Prompts that leave no room for an answer are passed over. Raises TrainingError where no tree was drafted.
        """
        used: list[Prompt] = []
        fitting = (prompt for prompt in prompts if len(prompt.ids) + self._growing.max_tokens <= self._room)
        while (rounds is None or len(self._trees) < rounds) and (some := list(islice(fitting, AT_ONCE))):
            questions = [self._growing.question(len(used) + place, prompt) for place, prompt in enumerate(some)]
            for prompt, answer in zip(some, self._answerer.answer(questions), strict=True):
                before = len(self._trees)
                self._grow_along(len(used), answer)
                used.append(prompt)
                on_trees(len(self._trees) - before)
        if not self._trees:
            raise TrainingError(f"no tree was drafted along {len(used)} prompts that leave room for an answer")
        return used

    def trees(self) -> Trees:
        return Trees.joined(self._trees)

    def texts(self) -> Texts:
        """Those that are kept; there must be one."""
        return Texts.joined(self._texts)

    def _grow_along(self, number: int, answer: Answer) -> None:
        """The deepest position first: a tree takes the places of what was read behind its root."""
        question = answer.question
        tokens = [*question.prompt, *answer.tokens][: len(answer.rows)]
        at, trees = len(question.prompt), list[tuple[int, ReplayedRound]]()
        for one in replay(answer, self._growing.policy, self._draft):
            trees.append((at, one))
            at += len(one.emitted)
        found: list[Trees] = []
        with self._reader.reads(tokens) as text:
            for position, one in reversed(trees):
                if one.draft.tree:
                    found.append(Trees.of(number, one, text.below(position, one.draft.tree, question)))
            if self._keeps_text(number):
                self._texts.append(Texts.of(tokens, text.rows, answer.rows))
        self._trees += reversed(found)


def own_prompts(target: Target, seed: int, threads: int) -> Iterator[Prompt]:
    """Endless: prompts whose user turns the target wrote."""
    talks, number = Talks(target.text, seed), 0
    while True:
        generator = Generator(target, threads=threads, at_once=_WRITTEN_AT_ONCE)
        asked = [talks.own(number + i) for i in range(_WRITTEN_AT_ONCE)]
        for talk in asked:
            talk.answer_tokens = 1
        said = generator.hear(asked)
        generator.close()
        number += _WRITTEN_AT_ONCE
        for one in said:
            ids = tuple(one.tokens[one.origins != ANSWERED].tolist())
            if ids:
                yield Prompt(ids, NO_CATEGORY)
