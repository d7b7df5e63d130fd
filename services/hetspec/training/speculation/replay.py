"""Speculation along an answer that is known: what would have been drafted, and how much of it accepted.

Speculation emits what plain decoding does, so the answer and its rows decide everything that a draft is made of; the
target need not be run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.draft_model import DraftModel
from hetspec.model.transformer import Rows
from hetspec.rpc.messages import Draft, DraftPolicy
from hetspec.training.speculation.answers import Answer
from hetspec.training.speculation.drafter import Drafter
from hetspec.training.speculation.rounds import Task


@dataclass(frozen=True, slots=True)
class ReplayedRound:
    """draft, accepted, emitted: as of a `Round`. missed: the token that no child of the last accepted node held; None
    where the answer ended on a node. outputs: float32 [hidden], the draft model's, of nodes that it was fed."""

    draft: Draft
    accepted: tuple[int, ...]
    emitted: tuple[int, ...]
    outputs: Mapping[int, Rows] = field(default_factory=dict, compare=False)

    @property
    def missed(self) -> int | None:
        return self.emitted[-1] if len(self.emitted) > len(self.accepted) else None


def replay(answer: Answer, policy: DraftPolicy, draft: DraftModel | None) -> Iterator[ReplayedRound]:
    """The rounds of speculation, but for the first, which drafts nothing and emits the first token."""
    asked, tokens = answer.question, answer.tokens
    drafter = Drafter(draft, Task(asked.prompt, policy, asked.max_tokens, asked.sampling, asked.noise))
    try:
        drafter.append(asked.prompt)
        drafter.commit((), answer.rows[: len(asked.prompt)])
        at = 1  # tokens that are emitted
        while at < len(tokens):
            drafter.append(tokens[at - 1 : at])
            proposed = drafter.draft(asked.max_tokens - at - 1)
            accepted = _accepted(proposed.tree, tokens[at:])
            first = len(asked.prompt) + at - 1
            drafter.commit(accepted, answer.rows[first : first + 1 + len(accepted)])
            emitted = tokens[at : at + len(accepted) + 1]
            yield ReplayedRound(proposed, accepted, emitted, drafter.outputs)
            at += len(emitted)
    finally:
        drafter.release()


def _accepted(tree: TokenTree, tokens: Sequence[int]) -> tuple[int, ...]:
    nodes: list[int] = []
    for token in tokens:
        child = tree.child(nodes[-1] if nodes else ROOT, token)
        if child is None:
            break
        nodes.append(child)
    return tuple(nodes)
