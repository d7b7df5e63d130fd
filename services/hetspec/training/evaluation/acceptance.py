"""Accept lengths of speculative decoding: tokens a target pass, by way of drafting and kind of prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.drafting.draft_model import DraftModel
from hetspec.rpc.messages import DraftPolicy
from hetspec.training.evaluation.passes import Passes
from hetspec.training.speculation.answers import Answer
from hetspec.training.speculation.replay import replay
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

_LOOKUP, _MODEL = (DRAFT_SOURCE_LOOKUP,), (DRAFT_SOURCE_MODEL,)
OVERALL = "overall"


@dataclass(frozen=True, slots=True)
class Shapes:
    """depth: of a chain. nodes, tree_depth: of a tree."""

    depth: int = 5
    nodes: int = 32
    tree_depth: int = 8

    def ways(self) -> dict[str, DraftPolicy]:
        """Of drafting: chain and tree with the draft model and prompt lookup, and a chain by either alone."""
        width = max(1, min(8, self.nodes // 4))
        return {
            "chain": DraftPolicy(self.depth, self.depth, 1, _MODEL + _LOOKUP),
            "tree": DraftPolicy(self.nodes, self.tree_depth, width, _MODEL + _LOOKUP),
            "model": DraftPolicy(self.depth, self.depth, 1, _MODEL),
            "lookup": DraftPolicy(self.depth, self.depth, 1, _LOOKUP),
        }


class Acceptance:
    """Adds up what drafts would have been good for along answers.

    found: by category, all of them together under OVERALL, then by way.
    """

    def __init__(self, draft: DraftModel, head_ids: NDArray[np.integer], shapes: Shapes) -> None:
        """head_ids: that the draft can propose."""
        self.found: dict[str, dict[str, Passes]] = {}
        self._draft = draft
        self._head_ids = frozenset(head_ids.tolist())
        self._ways = shapes.ways()

    def add(self, category: str, answer: Answer) -> None:
        for way, policy in self._ways.items():
            for one in replay(answer, policy, self._draft):
                for name in (OVERALL, category):
                    self.found.setdefault(name, {}).setdefault(way, Passes()).add(one, self._head_ids)
