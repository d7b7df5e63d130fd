"""The token tree: what a drafter proposes, a verifier scores and a sampler walks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROOT = -1
"""The parent of a tree's first level: the last committed token, which is not itself a node."""


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Drafted tokens below the last committed one. Parents precede children; siblings hold different tokens.

    tokens: vocabulary ids, one a node.
    parents: index of each node's parent, or ROOT.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"tree: {len(self.tokens)} tokens but {len(self.parents)} parents")
        seen: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if not ROOT <= parent < node:
                raise ValueError(f"tree: parents[{node}] = {parent}, must be in [{ROOT}, {node})")
            if (parent, token) in seen:
                raise ValueError(f"tree: node {node} repeats token {token} under parent {parent}")
            seen.add((parent, token))

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> TokenTree:
        return cls(tuple(tokens), tuple(range(ROOT, len(tokens) - 1)))

    def __len__(self) -> int:
        return len(self.tokens)

    def child(self, parent: int, token: int) -> int | None:
        """The child of `parent` (a node, or ROOT) that holds `token`."""
        for node in range(parent + 1, len(self.tokens)):
            if self.parents[node] == parent and self.tokens[node] == token:
                return node
        return None

    def depths(self) -> list[int]:
        """Depth of each node; children of ROOT have depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths

    def path(self, node: int) -> list[int]:
        """Nodes from the first level down to `node`."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def is_path(self, nodes: Sequence[int]) -> bool:
        """Whether `nodes` starts at the first level and goes down, each the child of the one before."""
        parent = ROOT
        for node in nodes:
            if not 0 <= node < len(self.tokens) or self.parents[node] != parent:
                return False
            parent = node
        return True
