"""A token tree while it grows, best-first: nodes by the chance that they lie on the accepted path.

A node's gain is the product of the draft's probabilities from the root to it (Lever, section 1; EAGLE-2, arXiv
2406.16858). Each draft step feeds the nodes of the highest gain that were not fed yet; in the end the nodes of the
highest gain are kept. A child's gain never exceeds its parent's, so what is kept is a tree.
"""

from __future__ import annotations

from bisect import insort
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
        self._children: dict[tuple[int, int], int | None] = {}  # None: known, and of too small a gain to be a node
        self._best: list[tuple[float, int]] = []  # (-gain, node), ascending: those that would be kept now
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
                known = None
                if self._takes(gain * probability):
                    known = self._keep(_Node(token, parent, depth, probability, gain * probability, source))
                self._children[parent, token] = known

    def add_run(self, tokens: Sequence[int], confidence: float, source: int) -> None:
        """A path from the root, each token with the same confidence."""
        parent = ROOT
        for token in tokens[: self._policy.max_depth]:
            self.add(parent, [(token, confidence)], source)
            child = self._children[parent, token]
            if child is None:
                break
            parent = child

    def select(self) -> list[int]:
        """Nodes to feed in the next draft step, parents already fed; none when the tree is grown."""
        if self._steps >= self._policy.max_depth - 1:
            return []
        self._steps += 1
        selected: list[int] = []
        for gain, i in self._best:
            if len(selected) == self._policy.width or not self._takes(-gain):
                break
            node = self._nodes[i]
            if node.fed is None and node.depth < self._policy.max_depth and self._is_fed(node.parent):
                selected.append(i)
        return sorted(selected)

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

    def parent(self, node: int) -> int:
        return self._nodes[node].parent

    def path(self, node: int) -> list[int]:
        """Tokens from the first level down to `node`; none for ROOT."""
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self._nodes[node].token)
            node = self._nodes[node].parent
        return tokens[::-1]

    def draft(self) -> tuple[Draft, list[int | None]]:
        """The tree to verify, and the place of each of its nodes among the fed ones, if it has one."""
        kept = sorted(i for _, i in self._best)
        place = {node: i for i, node in enumerate(kept)} | {ROOT: ROOT}
        nodes = [self._nodes[i] for i in kept]
        tree = TokenTree(tuple(node.token for node in nodes), tuple(place[node.parent] for node in nodes))
        probabilities = tuple(node.probability for node in nodes)
        return Draft(tree, probabilities, tuple(node.source for node in nodes)), [node.fed for node in nodes]

    def _keep(self, node: _Node) -> int:
        """Among equals the earlier goes first, so that a parent comes before its child. One that falls behind the kept
        ones, now or later, never comes back: gains do not change, and nodes are only added."""
        self._nodes.append(node)
        insort(self._best, (-node.gain, len(self._nodes) - 1))
        del self._best[self._policy.max_nodes :]
        return len(self._nodes) - 1

    def _takes(self, gain: float) -> bool:
        """Whether a node added now with that gain would be kept. If not, neither would its child."""
        if len(self._best) == self._policy.max_nodes:
            return gain > -self._best[-1][0]
        return gain >= self._policy.min_gain

    def _is_fed(self, node: int) -> bool:
        return node == ROOT or self._nodes[node].fed is not None
