"""Gathers trees of prompts: those of a file, or user turns that the target writes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.corpus.generation import Generator
from hetspec.training.corpus.prompts import NO_CATEGORY, Prompt
from hetspec.training.corpus.talk import ANSWERED
from hetspec.training.corpus.talks import Talks
from hetspec.training.early_exit.data import TreeRecorder, Trees
from hetspec.training.errors import TrainingError
from hetspec.training.speculation.open_draft import OpenDraft
from hetspec.training.speculation.open_speculator import open_speculator
from hetspec.training.speculation.rounds import Task
from hetspec.training.target import Target
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

TEMPERATURES = (0.0, 0.0, 0.8)
"""Of the prompts' answers, by turns."""

_AT_ONCE = 24  # user turns that are written side by side
_CONTEXT_TOKENS = 1024  # of a prompt with its answer


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

    def task(self, number: int, prompt: Prompt) -> Task:
        """Of the prompt of that number."""
        sampling = Sampling(temperature_of(number))
        return Task(prompt.ids, self.policy, self.max_tokens, sampling, NoiseKey(self.seed + number))


def temperature_of(number: int) -> float:
    """Of the answer to the prompt of that number."""
    return TEMPERATURES[number % len(TEMPERATURES)]


class TreeGatherer:
    """Records trees with their rows after some of the target's layers. Closes what it opens: use it with `with`."""

    def __init__(self, target: Target, draft: OpenDraft, growing: Growing, layers: Sequence[int]) -> None:
        self._growing = growing
        self._room = min(_CONTEXT_TOKENS, target.checkpoint.config.max_context)
        self.speculator = open_speculator(
            target, draft, threads=growing.threads, max_context=self._room, max_nodes=growing.nodes
        )
        self._recorder = TreeRecorder(self.speculator, layers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.speculator.close()

    def gather(self, prompts: Iterator[Prompt], rounds: int | None, on_trees: Callable[[int], None]) -> list[Prompt]:
        """Until there are so many trees, or the prompts end; returns those that were used, by their numbers.

        Prompts that leave no room for an answer are passed over. Raises TrainingError where no tree was drafted.
        """
        used: list[Prompt] = []
        gathered = 0
        for prompt in prompts:
            if len(prompt.ids) + self._growing.max_tokens > self._room:
                continue
            found = self._recorder.record(len(used), self._growing.task(len(used), prompt))
            used.append(prompt)
            gathered += found
            on_trees(found)
            if rounds is not None and gathered >= rounds:
                break
        if not gathered:
            raise TrainingError(f"no tree was drafted along {len(used)} prompts that leave room for an answer")
        return used

    def trees(self) -> Trees:
        return self._recorder.trees()


def own_prompts(target: Target, seed: int, threads: int) -> Iterator[Prompt]:
    """Endless: prompts whose user turns the target wrote."""
    talks, number = Talks(target.text, seed), 0
    while True:
        generator = Generator(target, threads=threads, at_once=_AT_ONCE)
        asked = [talks.own(number + i) for i in range(_AT_ONCE)]
        for talk in asked:
            talk.answer_tokens = 1
        said = generator.hear(asked)
        generator.close()
        number += _AT_ONCE
        for one in said:
            ids = tuple(one.tokens[one.origins != ANSWERED].tolist())
            if ids:
                yield Prompt(ids, NO_CATEGORY)
