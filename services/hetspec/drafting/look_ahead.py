"""Drafting on while a batch of the tree is being verified: below the likeliest outcomes of that.

Ends that the draft model was never fed are fed first, as long as an outcome behind one of them could be among the
likeliest. These then join the tree, and below all of them together it grows by gain:

- A policy no wider than the number of outcomes grows chains: a node gets its likeliest child alone. A step feeds the
  `width` likeliest tips, so that each of k chains grows by one where the width is k. Where prompt lookup knows a way
  too, each chain keeps the path that promises most.
- A wider one grows trees: a step feeds the `width` likeliest nodes, and each gets as many children.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.drafting.best import Best
from hetspec.drafting.copies import Copies
from hetspec.drafting.costs import LAST_STRETCH
from hetspec.drafting.growing import Grown
from hetspec.drafting.growth import CHAINS, best_path
from hetspec.drafting.nodes import Guess, Proposal
from hetspec.drafting.outcomes import Outcomes
from hetspec.drafting.stops import Stops
from hetspec.rpc.messages import DraftPolicy, LookAhead
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL


class LookAheadGrowth:
    """Of a tree that was returned before, which stays as it is (`hetspec.drafting.growing.Growing`). What is found out
    goes into a copy of what was known, so that nothing has happened where nobody finishes it."""

    def __init__(
        self, before: Grown, look: LookAhead, policy: DraftPolicy, max_nodes: int, copies: Copies, by_levels: bool
    ) -> None:
        """max_nodes: of the whole tree. by_levels: a step feeds no node together with its parent.

        Raises ValueError where `look.since` is no node of the tree."""
        self.nodes = before.nodes.copy(fixed=before.kept)
        self._before = before.kept
        self._outcomes = Outcomes(self.nodes, before.kept, look)
        self._policy = policy
        self._copies = copies
        self._by_levels = by_levels
        self._room = min(policy.max_nodes, max_nodes - len(before.kept))
        self._is_chains = policy.width <= look.outcomes
        self._tops: list[int] | None = None  # the outcomes, once they are chosen
        self._depths: dict[int, int] = {}  # of these, 1, and of what may hang below them
        self._tried: set[int] = set()  # of those: whose children are known
        self._stops = Stops(policy.stop, self.nodes)
        self._steps = 0
        for end in self._outcomes.ends:
            self._add_runs(end, look.outcomes, 1)
            self._expand(end)

    @property
    def is_decided(self) -> bool:
        return self._room == 0

    @property
    def width(self) -> int:
        return self._policy.width

    @property
    def deepest(self) -> int:
        return max(map(self.nodes.depth, self._outcomes.ends)) + self._policy.max_depth

    def read(self, rows: int) -> None:
        """No costs are counted."""

    def select(self) -> list[int]:
        min_gain = self._policy.min_gain
        if self._tops is None and (ends := self._outcomes.unknown(self._likeliest(), min_gain)):
            return self._with_parents(ends[:LAST_STRETCH])
        self._begin()
        while self._steps < self._policy.max_depth - 1:
            self._steps += 1
            tips = self._tips()
            for tip in tips:
                self._expand(tip)  # as far as it was fed before, for another draft
            if unfed := [tip for tip in tips if not self.nodes.is_fed(tip)]:
                return self._with_parents(unfed)
        return []

    def feed(self, nodes: Sequence[int]) -> None:
        self.nodes.feed(nodes)

    def branch(self, node: int, proposal: Proposal) -> None:
        self.nodes.proposals[node] = proposal
        self._expand(node)

    def finish(self) -> Grown:
        tops, best = self._begin(), self._best(self._room)
        if self._is_chains:
            likely = list(self._best(CHAINS * self._room))
            chains = {node for top in tops for node in best_path(self.nodes, top, likely)}
            best.fill((node, self.nodes.gain(node)) for node in chains)
        kept = (*self._before, *sorted([*tops, *best]))
        return Grown(self.nodes, kept, self.nodes.draft(kept, 0))

    def _likeliest(self) -> list[int]:
        return self._outcomes.likeliest(self._room, self._policy.min_gain, self._policy.sources)

    def _begin(self) -> list[int]:
        """The outcomes, which are chosen once."""
        if self._tops is None:
            self._tops = self._likeliest()
            self._depths = dict.fromkeys(self._tops, 1)
            for top in self._tops:
                self._add_runs(top, self._branches, self._policy.max_depth - 1)
        return self._tops

    @property
    def _branches(self) -> int:
        return 1 if self._is_chains else self.width

    def _best(self, capacity: int) -> Best:
        """Of what hangs below the outcomes, as much as there is room for besides these."""
        best = Best(capacity - len(self._begin()), self._policy.min_gain)
        best.fill((node, self.nodes.gain(node)) for node, depth in self._depths.items() if depth > 1)
        return best

    def _tips(self) -> list[int]:
        """The likeliest nodes whose children are not known, where one of these would be kept."""
        best = self._best(self._room * (CHAINS if self._is_chains else 1))
        tips = [(-self.nodes.gain(node), node) for node in (*self._begin(), *best) if self._is_tip(node)]
        return [node for gain, node in sorted(tips)[: self.width] if best.takes(-gain)]

    def _is_tip(self, node: int) -> bool:
        depth = self._depths[node]
        is_next = depth == 1 or self.nodes.is_fed(self.nodes[node].parent)
        is_open = node not in self._tried and node not in self._stops
        return is_next and is_open and depth < self._policy.max_depth

    def _with_parents(self, nodes: Sequence[int]) -> list[int]:
        """What a step feeds so that these are fed, soon where it is too much for one."""
        wanted = set()
        for node in nodes:
            while not self.nodes.is_fed(node):
                wanted.add(node)
                node = self.nodes[node].parent
        if self._by_levels:
            wanted = {node for node in wanted if self.nodes.is_fed(self.nodes[node].parent)}
        return sorted(wanted)[: max(LAST_STRETCH, self.width)]

    def _expand(self, node: int) -> None:
        """Takes what the model says behind a node: all of it behind an end, where each is an outcome."""
        proposal = self.nodes.proposals.get(node)
        is_end = node in self._outcomes.ends
        if proposal is None or DRAFT_SOURCE_MODEL not in self._policy.sources or not (is_end or node in self._depths):
            return
        self._tried.add(node)
        if not is_end and self._stops.ends_before(node, self._depths[node]):
            return
        guesses = self._copies.join(proposal.candidates, self.nodes.path(node))
        best = guesses if is_end else guesses[: self._branches]
        self.nodes.add(node, [*best, *self.nodes.known(node, guesses[len(best) :])], proposal.entropy)
        for guess in best:
            self._join(node, guess.token)
        if not is_end:
            self._stops.drafted(node, self.nodes.children(node, best))

    def _add_runs(self, node: int, count: int, length: int) -> None:
        """What prompt lookup finds behind an end, or below an outcome."""
        for run in self._copies.runs(count, length, self.nodes.path(node)):
            parent = node
            for token, probability in run:
                if self.nodes.child(parent, token) is None:
                    self.nodes.add(parent, [Guess(token, probability, DRAFT_SOURCE_LOOKUP)])
                parent = self._join(parent, token)

    def _join(self, parent: int, token: int) -> int:
        """This child of a node; it may be kept where that is below an outcome."""
        child = self.nodes.child(parent, token)
        assert child is not None
        if parent in self._depths and self.nodes[child].source in self._policy.sources:
            self._depths[child] = self._depths[parent] + 1
        return child
