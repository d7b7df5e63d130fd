"""Drafted tokens as the target judged them: what an acceptance head is fitted to and measured on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT
from hetspec.model.forward import PAGE
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.corpus.prompts import Prompt
from hetspec.training.early_exit.gather import temperature_of
from hetspec.training.errors import TrainingError
from hetspec.training.speculation.answers import AT_ONCE, Answerer, Question
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft
from hetspec.training.speculation.replay import ReplayedRound, replay
from hetspec.training.target import Target
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL

_CONTEXT_TOKENS = 1024  # of a prompt with its answer
_PASS_ROWS = 256


@dataclass(frozen=True, slots=True)
class Judged:
    """Tokens of chains, each behind accepted ones. rows: float32 [tokens, hidden], the draft model's outputs behind
    them. accepted: bool. probabilities: float32, the draft's own. prompts: int64, the number of the prompt."""

    rows: NDArray[np.float32]
    accepted: NDArray[np.bool_]
    probabilities: NDArray[np.float32]
    prompts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.accepted)

    def only(self, chosen: NDArray[np.bool_]) -> Judged:
        return Judged(self.rows[chosen], self.accepted[chosen], self.probabilities[chosen], self.prompts[chosen])

    @classmethod
    def joined(cls, parts: Sequence[Judged]) -> Self:
        def of(field: Callable[[Judged], NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate([field(part) for part in parts])

        return cls(
            of(lambda p: p.rows), of(lambda p: p.accepted), of(lambda p: p.probabilities), of(lambda p: p.prompts)
        )


@dataclass(frozen=True, slots=True)
class Chains:
    """What is drafted: tokens of a chain, of an answer, the noise's seed."""

    length: int = 8
    max_tokens: int = 48
    seed: int = 0
    threads: int = 1

    @property
    def policy(self) -> DraftPolicy:
        """One token longer: the last one of a chain is not fed to the draft model."""
        return DraftPolicy(self.length + 1, self.length + 1, 1, (DRAFT_SOURCE_MODEL,))

    def question(self, number: int, prompt: Prompt) -> Question:
        """Of the prompt of that number."""
        return Question(prompt.ids, self.max_tokens, Sampling(temperature_of(number)), NoiseKey(self.seed + number))


def judged_of(one: ReplayedRound, prompt: int) -> Judged:
    """Of a round's chain: the accepted tokens and the one that was rejected, as far as the draft model was fed them; it
    was fed the first."""
    passed = {ROOT, *one.accepted}
    nodes = [node for node, above in enumerate(one.draft.tree.parents) if above in passed and node in one.outputs]
    return Judged(
        np.stack([one.outputs[node] for node in nodes]),
        np.array([node in passed for node in nodes], np.bool_),
        np.array([one.draft.probabilities[node] for node in nodes], np.float32),
        np.full(len(nodes), prompt),
    )


def along_answers(
    target: Target, draft: OpenDraft, chains: Chains, prompts: Iterable[Prompt]
) -> Iterator[tuple[int, list[ReplayedRound]]]:
    """Chains along the target's answers, by the prompt's number; prompts that leave no room for one are passed over."""
    room, nodes = min(_CONTEXT_TOKENS, target.checkpoint.config.max_context), chains.length + 1
    with ExitStack() as opened:
        answerer = opened.enter_context(closing(Answerer.open(target, threads=chains.threads, max_context=room)))
        parts = DraftParts(
            draft, threads=chains.threads, max_rows=_PASS_ROWS, max_context=room, kv_tokens=room + 2 * nodes + PAGE
        )
        model = opened.enter_context(closing(parts.model(draft.barred)))
        fitting = ((n, p) for n, p in enumerate(prompts) if len(p.ids) + chains.max_tokens <= room)
        while some := list(islice(fitting, AT_ONCE)):
            answers = answerer.answer([chains.question(number, prompt) for number, prompt in some])
            for (number, _), answer in zip(some, answers, strict=True):
                yield number, list(replay(answer, chains.policy, model))


def gather(
    target: Target,
    draft: OpenDraft,
    chains: Chains,
    prompts: Iterator[Prompt],
    rounds: int | None,
    on_rounds: Callable[[int], None],
) -> Judged:
    """Until so many chains were drafted, or the prompts end. Raises TrainingError where none was."""
    parts: list[Judged] = []
    for number, drafted in along_answers(target, draft, chains, prompts):
        found = [judged_of(one, number) for one in drafted if one.outputs]
        parts += found
        on_rounds(len(found))
        if rounds is not None and len(parts) >= rounds:
            break
    if not parts:
        raise TrainingError("no chain was drafted along the prompts that leave room for an answer")
    return Judged.joined(parts)
