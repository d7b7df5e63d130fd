"""A token tree while it grows, best-first: nodes by the chance that they lie on the accepted path.

Each draft step feeds the nodes of the highest gain that were not fed yet; in the end the nodes of the highest gain are
kept. A child's gain never exceeds its parent's, so what is kept is a tree. A chain grows alike, a child a node beside
prompt lookup's run, and keeps the one path that promises most. Where the policy tells costs, they decide when growth
ends and how many nodes are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from hetspec.decoding.tree import ROOT
from hetspec.drafting.best import Best
from hetspec.drafting.copies import Copies
from hetspec.drafting.growing import Grown
from hetspec.drafting.nodes import Candidate, Guess, Nodes, Proposal
from hetspec.drafting.stops import Stops
from hetspec.drafting.tree_choice import TreeChoice
from hetspec.rpc.messages import DraftPolicy
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP

CHAINS = 2  # that grow side by side before one is kept: prompt lookup's and the draft model's


class Growth:
    """Of a new tree below the last committed token (`hetspec.drafting.growing.Growing`)."""

    def __init__(self, policy: DraftPolicy, copies: Copies | None = None) -> None:
        """copies: None where nothing is looked up."""
        self._is_chain = policy.width == 1 and policy.costs is None
        self._policy = replace(policy, max_depth=min(policy.max_depth, policy.max_nodes)) if self._is_chain else policy
        self._choice = TreeChoice(policy.costs, policy.max_nodes) if policy.costs else None
        self.nodes = Nodes(policy.costs.calibration if policy.costs else None)
        self._best = Best(policy.max_nodes * (CHAINS if self._is_chain else 1), policy.min_gain)
        self._stops = Stops(policy.stop, self.nodes)
        self._copies = copies or Copies()
        self._steps = 0

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def is_decided(self) -> bool:
        """Whether a path of certain tokens goes as deep as may be: nothing else could be accepted."""
        deepest = min(self._policy.max_depth, self._policy.max_nodes)
        return any(self.nodes.depth(node) == deepest and self.nodes.gain(node) == 1.0 for node in self._best)

    @property
    def width(self) -> int:
        return self._policy.width

    @property
    def deepest(self) -> int:
        return self._policy.max_depth

    def add_run(self, run: Sequence[Candidate], source: int) -> None:
        """A path from the root. What is known of it stays as it is."""
        parent = ROOT
        for token, probability in run[: self._policy.max_depth]:
            child = self.nodes.child(parent, token)
            if child is None:
                child = len(self.nodes)
                self._add(parent, [Guess(token, probability, source)])
            parent = child

    def look_up(self) -> None:
        """Runs that occurred before."""
        for run in self._copies.runs(self.width, self._policy.max_depth):
            self.add_run(run, DRAFT_SOURCE_LOOKUP)

    def branch(self, node: int, proposal: Proposal) -> None:
        self.nodes.proposals[node] = proposal
        if self._stops.ends_before(node, self.nodes.depth(node)) or self.nodes.depth(node) == self._policy.max_depth:
            return
        guesses = self._copies.join(proposal.candidates, self.nodes.path(node))
        best = guesses[: self.width]
        self._add(node, [*best, *self.nodes.known(node, guesses[self.width :])], proposal.entropy)
        self._stops.drafted(node, self.nodes.children(node, best))

    def _add(self, parent: int, guesses: Sequence[Guess], entropy: float = 0.0) -> None:
        known = len(self.nodes)
        if self.nodes.add(parent, guesses, entropy):
            self._best.fill((node, self.nodes.gain(node)) for node in range(len(self.nodes)))
        else:
            for node in range(known, len(self.nodes)):
                self._best.offer(node, self.nodes.gain(node))

    def select(self) -> list[int]:
        if self._steps >= self._policy.max_depth - 1 or (self._is_chain and self._stops):
            return []
        self._steps += 1
        selected: list[int] = []
        for i in self._best:
            if len(selected) == self._policy.width or not self._best.takes(self.nodes.gain(i)):
                break
            if self._may_branch(i) and self.nodes.is_fed(self.nodes[i].parent):
                selected.append(i)
        return sorted(selected if self._choice is None else selected[: self._worth_feeding(self._choice, selected)])

    def read(self, rows: int) -> None:
        if self._choice is not None:
            self._choice.spend(rows)

    def feed(self, nodes: Sequence[int]) -> None:
        if self._choice is not None:
            self._choice.spend(len(nodes))
        self.nodes.feed(nodes)

    def finish(self) -> Grown:
        kept, spent = self._kept(), round(self._choice.spent) if self._choice else 0
        return Grown(self.nodes, tuple(kept), self.nodes.draft(kept, spent))

    def _kept(self) -> list[int]:
        best = list(self._best)
        if self._is_chain:
            return best_path(self.nodes, ROOT, best)
        count = len(best) if self._choice is None else self._choice.nodes(self._best.gains)
        return sorted(best[:count])

    def _worth_feeding(self, choice: TreeChoice, ready: Sequence[int]) -> int:
        """How many of these nodes, best first."""
        unfed = list(islice(filter(self._may_branch, self._best), self._policy.width))
        steps = self._policy.max_depth - self._steps
        return choice.to_feed(self._best.gains, self._gains(ready), self._gains(unfed), steps)

    def _gains(self, nodes: Sequence[int]) -> list[float]:
        return [self.nodes.gain(node) for node in nodes]

    def _may_branch(self, node: int) -> bool:
        is_open = not self.nodes.is_fed(node) and node not in self._stops
        return is_open and self.nodes.depth(node) < self._policy.max_depth


def best_path(nodes: Nodes, top: int, below: Iterable[int]) -> list[int]:
    """Of the paths below `top` the one with the largest sum of gains: the tokens it is expected to give. Among equals
    the deeper: a gain may be too small to change a sum. below: nodes that may be on it, parents first."""
    totals: dict[int, tuple[float, int]] = {top: (0.0, 0)}  # sum of gains, depth
    for i in below:
        if nodes[i].parent in totals:
            above, depth = totals[nodes[i].parent]
            totals[i] = above + nodes.gain(i), depth + 1
    node, path = max(totals, key=lambda i: totals[i]), list[int]()
    while node != top:
        path.append(node)
        node = nodes[node].parent
    return sorted(path)
