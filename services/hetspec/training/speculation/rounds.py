"""What speculation is asked to continue, and what each of its rounds came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.model.transformer import Rows
from hetspec.rpc.messages import Draft, DraftPolicy

PLAIN = DraftPolicy(max_nodes=1, max_depth=1, width=1, sources=())


@dataclass(frozen=True, slots=True)
class Task:
    """What to continue, and how. With policy PLAIN nothing is drafted."""

    prompt: tuple[int, ...]
    policy: DraftPolicy
    max_tokens: int
    sampling: Sampling = Sampling()
    noise: NoiseKey = NoiseKey(0)


@dataclass(frozen=True, slots=True)
class Round:
    """draft: the tree that was verified; the first round, which reads the prompt's end, has none.

    accepted: nodes, from the first level down. emitted: their tokens and, unless the text ends on a node, one more.
    rows: float32 [1 + nodes, hidden] after all layers, the root's first. looked: the same after fewer, by their number.
    """

    draft: Draft
    accepted: tuple[int, ...]
    emitted: tuple[int, ...]
    rows: Rows
    looked: Mapping[int, Rows]
