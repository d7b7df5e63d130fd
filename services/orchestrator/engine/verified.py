"""What the target's pass leaves of a drafted tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.messages import Walk


@dataclass(frozen=True, slots=True)
class Verified:
    """tree: the nodes that went through all layers. nodes: what each of them is in the drafted tree, as drafter and
    verifier know it. hidden: float32 [1 + nodes, hidden_size], the row of the session's last token, then of theirs."""

    tree: TokenTree
    nodes: tuple[int, ...]
    hidden: bytes

    @classmethod
    def of(cls, drafted: TokenTree, hidden: bytes, pruned: tuple[int, ...] = ()) -> Self:
        """pruned: nodes that left the pass early, every one with all below it."""
        if not pruned:
            return cls(drafted, tuple(range(len(drafted))), hidden)
        gone = frozenset(pruned)
        nodes = tuple(node for node in range(len(drafted)) if node not in gone)
        places = {ROOT: ROOT} | {node: place for place, node in enumerate(nodes)}
        tokens = tuple(drafted.tokens[node] for node in nodes)
        return cls(TokenTree(tokens, tuple(places[drafted.parents[node]] for node in nodes)), nodes, hidden)

    def in_draft(self, walk: Walk) -> Walk:
        """A walk over `tree` as one over the drafted tree."""
        return replace(walk, accepted=tuple(self.nodes[node] for node in walk.accepted))
