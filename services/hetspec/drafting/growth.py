"""A token tree while it grows, best-first: nodes by the chance that they lie on the accepted path.

A node's gain is the product of the draft's probabilities from the root to it (Lever, section 1; EAGLE-2, arXiv
2406.16858). Each draft step feeds the nodes of the highest gain that were not fed yet; in the end the nodes of the
highest gain are kept. A child's gain never exceeds its parent's, so what is kept is a tree. A chain grows alike, and of
its two sources keeps the one path that promises most. Where the policy tells costs, they decide when growth ends and
how many nodes are kept.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.tree_choice import TreeChoice
from hetspec.rpc.messages import Draft, DraftPolicy

Candidate = tuple[int, float]  # token, probability given its parent
_CHAINS = 2  # that grow side by side before one is kept: prompt lookup's and the draft model's


@dataclass(slots=True)
class _Node:
    token: int
    parent: int
    depth: int
    probability: float  # the draft's own
    chance: float  # of acceptance, given its parent
    gain: float
    source: int
    fed: int | None = None  # its place among the fed nodes


class Growth:
    """Candidates found so far. `select` says which to feed next, `draft` what to verify."""

    def __init__(self, policy: DraftPolicy) -> None:
        self._is_chain = policy.width == 1 and policy.costs is None
        self._policy = replace(policy, max_depth=min(policy.max_depth, policy.max_nodes)) if self._is_chain else policy
        self._capacity = policy.max_nodes * (_CHAINS if self._is_chain else 1)
        self._choice = TreeChoice(policy.costs, policy.max_nodes) if policy.costs else None
        self._calibration = policy.costs.calibration if policy.costs else None
        self._nodes: list[_Node] = []
        self._children: dict[tuple[int, int], int] = {}
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
        """Children of `parent` (a node, or ROOT), as far as the depth limit allows. A known one keeps its source, and
        the larger of the two estimates."""
        depth = 1 if parent == ROOT else self._nodes[parent].depth + 1
        gain = 1.0 if parent == ROOT else self._nodes[parent].gain
        if depth > self._policy.max_depth:
            return
        for (token, probability), chance in zip(candidates, self._chances(candidates, depth, source), strict=True):
            known = self._children.get((parent, token))
            if known is None:
                self._children[parent, token] = len(self._nodes)
                self._keep(_Node(token, parent, depth, probability, chance, gain * chance, source))
            elif chance > self._nodes[known].chance:
                self._raise(known, probability, chance)

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
        selected: list[int] = []
        for gain, i in self._best:
            if len(selected) == self._policy.width or not self._takes(-gain):
                break
            if self._may_branch(i) and self._is_fed(self._nodes[i].parent):
                selected.append(i)
        return sorted(selected if self._choice is None else selected[: self._worth_feeding(self._choice, selected)])

    def read(self, rows: int) -> None:
        """The model has read so many committed tokens in the step that begins the draft."""
        if self._choice is not None:
            self._choice.spend(rows)

    def feed(self, nodes: Sequence[int]) -> None:
        """The model's KV holds them now, in this order."""
        if self._choice is not None:
            self._choice.spend(len(nodes))
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
        kept, spent = self._kept(), round(self._choice.spent) if self._choice else 0
        place = {node: i for i, node in enumerate(kept)} | {ROOT: ROOT}
        nodes = [self._nodes[i] for i in kept]
        tree = TokenTree(tuple(node.token for node in nodes), tuple(place[node.parent] for node in nodes))
        probabilities = tuple(node.probability for node in nodes)
        return Draft(tree, probabilities, tuple(node.source for node in nodes), spent), [node.fed for node in nodes]

    def _kept(self) -> list[int]:
        if self._is_chain:
            return self._best_path()
        count = len(self._best) if self._choice is None else self._choice.nodes(self._gains(self._best))
        return sorted(i for _, i in self._best[:count])

    def _worth_feeding(self, choice: TreeChoice, ready: Sequence[int]) -> int:
        """How many of these nodes, best first."""
        unfed = [(gain, i) for gain, i in self._best if self._may_branch(i)][: self._policy.width]
        steps = self._policy.max_depth - self._steps
        return choice.to_feed(self._gains(self._best), [self._nodes[i].gain for i in ready], self._gains(unfed), steps)

    @staticmethod
    def _gains(best: Sequence[tuple[float, int]]) -> list[float]:
        return [-gain for gain, _ in best]

    def _chances(self, candidates: Sequence[Candidate], depth: int, source: int) -> list[float]:
        probabilities = [probability for _, probability in candidates]
        return self._calibration.chances(source, depth, probabilities) if self._calibration else probabilities

    def _best_path(self) -> list[int]:
        """The nodes of the path with the largest sum of gains: the tokens it is expected to give. Among equals the
        deeper: a gain may be too small to change a sum."""
        totals: dict[int, tuple[float, int]] = {ROOT: (0.0, 0)}  # sum of gains, depth
        for _, i in self._best:  # parents come first
            above, depth = totals[self._nodes[i].parent]
            totals[i] = above + self._nodes[i].gain, depth + 1
        node, path = max(totals, key=lambda i: totals[i]), list[int]()
        while node != ROOT:
            path.append(node)
            node = self._nodes[node].parent
        return sorted(path)

    def _keep(self, node: _Node) -> None:
        """Among equals the earlier goes first, so that a parent comes before its child."""
        self._nodes.append(node)
        if self._takes(node.gain):
            insort(self._best, (-node.gain, len(self._nodes) - 1))
            del self._best[self._capacity :]

    def _raise(self, node: int, probability: float, chance: float) -> None:
        """Another source finds the node likelier, and so all that hangs below it."""
        self._nodes[node].probability, self._nodes[node].chance = probability, chance
        for one in self._nodes[node:]:
            one.gain = one.chance * (1.0 if one.parent == ROOT else self._nodes[one.parent].gain)
        likely = ((-one.gain, i) for i, one in enumerate(self._nodes) if one.gain >= self._policy.min_gain)
        self._best = sorted(likely)[: self._capacity]

    def _takes(self, gain: float) -> bool:
        """Whether a node added now with that gain would be kept. If not, neither would its child."""
        if len(self._best) == self._capacity:
            return gain > -self._best[-1][0]
        return gain >= self._policy.min_gain

    def _may_branch(self, node: int) -> bool:
        return self._nodes[node].fed is None and self._nodes[node].depth < self._policy.max_depth

    def _is_fed(self, node: int) -> bool:
        return node == ROOT or self._nodes[node].fed is not None
