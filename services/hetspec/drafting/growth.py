"""A token tree while it grows, best-first: nodes by the chance that they lie on the accepted path.

A node's gain is the product of the draft's probabilities from the root to it (Lever, section 1; EAGLE-2, arXiv
2406.16858). Each draft step feeds the nodes of the highest gain that were not fed yet; in the end the nodes of the
highest gain are kept. A child's gain never exceeds its parent's, so what is kept is a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.rpc.messages import Draft, DraftPolicy

Candidate = tuple[int, float]  # token, probability given its parent


@dataclass(slots=True)
class _Node:
    token: int
    parent: int
    depth: int
    probability: float
    gain: float
    source: int
    fed: int | None = None  # its place among the fed nodes


class Growth:
    """Candidates found so far. `select` says which to feed next, `draft` what to verify."""

    def __init__(self, policy: DraftPolicy) -> None:
        self._policy = policy
        self._nodes: list[_Node] = []
        self._children: dict[tuple[int, int], int] = {}
        self._fed: list[int] = []
        self._steps = 0

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def is_decided(self) -> bool:
        """Whether a path of certain tokens goes as deep as may be: nothing else could be accepted."""
        deepest = min(self._policy.max_depth, self._policy.max_nodes)
        return any(node.depth == deepest and node.gain == 1.0 for node in self._nodes)

    @property
    def width(self) -> int:
        return self._policy.width

    def add(self, parent: int, candidates: Sequence[Candidate], source: int) -> None:
        """Children of `parent` (a node, or ROOT), as far as the depth limit allows; a known one keeps its estimate."""
        depth = 1 if parent == ROOT else self._nodes[parent].depth + 1
        gain = 1.0 if parent == ROOT else self._nodes[parent].gain
        if depth > self._policy.max_depth:
            return
        for token, probability in candidates:
            if (parent, token) not in self._children:
                self._children[parent, token] = len(self._nodes)
                self._nodes.append(_Node(token, parent, depth, probability, gain * probability, source))

    def add_run(self, tokens: Sequence[int], confidence: float, source: int) -> None:
        """A path from the root, each token with the same confidence."""
        parent = ROOT
        for token in tokens[: self._policy.max_depth]:
            self.add(parent, [(token, confidence)], source)
            parent = self._children[parent, token]

    def select(self) -> list[int]:
        """Nodes to feed in the next draft step, parents already fed; none when the tree is grown."""
        if self._steps >= self._policy.max_depth - 1:
            return []
        self._steps += 1
        worth = set(self._best())
        open_nodes = [
            i
            for i, node in enumerate(self._nodes)
            if i in worth and node.fed is None and node.depth < self._policy.max_depth and self._is_fed(node.parent)
        ]
        return sorted(sorted(open_nodes, key=lambda i: -self._nodes[i].gain)[: self._policy.width])

    def feed(self, nodes: Sequence[int]) -> None:
        """The model's KV holds them now, in this order."""
        for node in nodes:
            self._nodes[node].fed = len(self._fed)
            self._fed.append(node)

    def fed_tree(self, more: Sequence[int]) -> TokenTree:
        """The fed nodes, in the order of their feeding, then `more` whose parents are among them."""
        order = [*self._fed, *more]
        place = {node: i for i, node in enumerate(order)} | {ROOT: ROOT}
        nodes = [self._nodes[i] for i in order]
        return TokenTree(tuple(node.token for node in nodes), tuple(place[node.parent] for node in nodes))

    def path(self, node: int) -> list[int]:
        """Tokens from the first level down to `node`; none for ROOT."""
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self._nodes[node].token)
            node = self._nodes[node].parent
        return tokens[::-1]

    def draft(self) -> tuple[Draft, list[int | None]]:
        """The tree to verify, and the place of each of its nodes among the fed ones, if it has one."""
        kept = sorted(self._best())
        place = {node: i for i, node in enumerate(kept)} | {ROOT: ROOT}
        nodes = [self._nodes[i] for i in kept]
        tree = TokenTree(tuple(node.token for node in nodes), tuple(place[node.parent] for node in nodes))
        probabilities = tuple(node.probability for node in nodes)
        return Draft(tree, probabilities, tuple(node.source for node in nodes)), [node.fed for node in nodes]

    def _best(self) -> list[int]:
        """The nodes of the highest gain; among equals the earlier, so that a parent comes before its child."""
        return sorted(range(len(self._nodes)), key=lambda i: (-self._nodes[i].gain, i))[: self._policy.max_nodes]

    def _is_fed(self, node: int) -> bool:
        return node == ROOT or self._nodes[node].fed is not None
