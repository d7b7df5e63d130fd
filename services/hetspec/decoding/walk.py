"""Walks verified trees from the root: choose the token that follows, step to the child that holds it, until none does.

Several walks go in lockstep, so that a step projects at most one hidden row of each to the vocabulary, and only rows on
accepted paths are ever projected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.choose import Logits, Logprobs, choose, logprobs_of
from hetspec.decoding.constraint import DeadEnd
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT, TokenTree

Row = tuple[int, int]
"""Index of a walk, and a row of its hidden rows: 0 for the root, 1 + i for node i."""

Project = Callable[[Sequence[Row]], NDArray[np.float32]]
"""Logits of these rows, [len(rows), vocab]; the walk may write to them."""


@dataclass(frozen=True, slots=True)
class WalkSpec:
    """What decides a walk besides the logits.

    position: absolute position of the first token chosen. max_tokens: emit at most so many, at least 1.
    end_ids: emitting one of these ends the walk. top_logprobs: None asks for no logprobs.
    adjuster: what the request changes of the logits; None: nothing.
    """

    tree: TokenTree
    sampling: Sampling
    noise: NoiseKey
    position: int
    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    top_logprobs: int | None = None
    adjuster: Adjuster | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens = {self.max_tokens}, must be >= 1")
        if not 0 <= self.position <= 2**32 - self.max_tokens:
            raise ValueError(f"position = {self.position}, must be in [0, 2**32 - max_tokens]")


@dataclass(slots=True)
class Steps:
    """What a walk emitted: tokens[i] is node accepted[i]'s; one more, the bonus, unless it ended on a node.

    dead_end: why nothing could be chosen next.
    """

    tokens: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    dead_end: str | None = None

    @property
    def node(self) -> int:
        """Where the walk stands."""
        return self.accepted[-1] if self.accepted else ROOT


def walk(specs: Sequence[WalkSpec], project: Project, forbidden: NDArray[np.intp] | None = None) -> list[Steps]:
    """One result a spec. `forbidden` ids are never chosen and have no probability: padding, holes of the vocabulary."""
    steps = [Steps() for _ in specs]
    walking = list(range(len(specs)))
    while walking:
        logits = project([(i, 1 + steps[i].node) for i in walking])
        if forbidden is not None:
            logits[:, forbidden] = -np.inf
        walking = [i for i, row in zip(walking, logits, strict=True) if _step(specs[i], steps[i], row)]
    return steps


def _step(spec: WalkSpec, steps: Steps, logits: Logits) -> bool:
    """Emit one token; whether the walk goes on."""
    position = spec.position + len(steps.tokens)
    try:
        adjusted = _adjusted(spec, steps, logits, position)
    except DeadEnd as error:
        steps.dead_end = str(error)
        return False
    token = choose(adjusted, spec.sampling, spec.noise, position)
    if spec.top_logprobs is not None:
        steps.logprobs.append(logprobs_of(logits, token, spec.top_logprobs))
    child = spec.tree.child(steps.node, token)
    steps.tokens.append(token)
    if child is None:
        return False
    steps.accepted.append(child)
    return token not in spec.end_ids and len(steps.tokens) < spec.max_tokens


def _adjusted(spec: WalkSpec, steps: Steps, logits: Logits, position: int) -> Logits:
    """What to choose by. `logits` themselves stay as they are only where logprobs are still to be taken of them."""
    if spec.adjuster is None or not spec.adjuster.changes(position):
        return logits
    if spec.top_logprobs is not None:
        logits = logits.copy()
    spec.adjuster.adjust(logits, steps.tokens, position)
    return logits
