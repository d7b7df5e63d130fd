"""How large a token tree should be: as large as gives the most expected tokens for what its round costs (Lever, 1).

Of a tree whose nodes have gains g (each the chance that the node lies on the accepted path) the round emits
E = 1 + sum of g tokens in expectation, the 1 being the bonus, and costs C = what was spent on drafting + the target's
pass over 1 + nodes rows. The best tree has the largest E / C. Of all trees of n nodes the n nodes of the largest gains
have the largest E; as a child's gain never exceeds its parent's they are a tree; and C is the same for all of n nodes.
So the best tree is a prefix of the best-first order, the empty one among them, whatever the cost curve looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from operator import add, truediv

from hetspec.drafting.costs import DraftCosts


class TreeChoice:
    """Of one draft while it grows. Gains are given best first."""

    def __init__(self, costs: DraftCosts, max_nodes: int) -> None:
        """Raises ValueError where the curve does not tell of a tree so large."""
        self.spent = 0.0  # on steps of the draft model
        self._costs = costs
        self._pass = [costs.round + cost for cost in costs.verify.up_to(1 + max_nodes)]  # by nodes, from none

    def spend(self, rows: int) -> None:
        """A step of the draft model has fed so many."""
        self.spent += self._costs.draft_step(rows)

    def nodes(self, gains: Sequence[float]) -> int:
        """Of the best tree; among equals the smaller."""
        rates = list(self._rates(gains, self.spent))
        return rates.index(max(rates))

    def rate(self, gains: Sequence[float]) -> float:
        """Expected tokens for a unit of cost, of the best tree."""
        return max(self._rates(gains, self.spent))

    def to_feed(self, gains: Sequence[float], ready: Sequence[float], unfed: Sequence[float], steps: int) -> int:
        """How many of the nodes that are `ready` the next step should feed; 0 where no further step can pay. Of counts
        that are as good the most: what is fed for nothing now may pay later. The others as in `bounds`."""
        now = self.rate(gains)
        if not ready or all(bound <= now for bound in self.bounds(gains, unfed, steps)):
            return 0
        return max(range(1, len(ready) + 1), key=lambda count: (self._one_step(gains, ready[:count]), count))

    def bounds(self, gains: Sequence[float], unfed: Sequence[float], steps: int) -> Iterator[float]:
        """Tokens for a unit of cost that no growth exceeds: of 1, 2, ... `steps` steps more. unfed: the w largest gains
        of nodes that may still have children, w being the most that a step feeds.

        Siblings have chances of at most 1 together, so that the children of a node have gains of at most its own
        together. Let u be the gains of all unfed nodes, largest first. Of what one step adds, m nodes have at most m
        parents, and w at most: together they have no more than the min(m, w) largest of u. Feeding puts children in
        their parents' place, and no k children have more than their k or fewer parents, so that the sum of the k
        largest of u never grows. Whatever m nodes j steps add have therefore no more than the m largest among j copies
        of u[:w]. As if these were known nodes, the best tree of them all is taken; a step costs that of one row at
        least. (That a second source finds a known node likelier is left out of account.)
        """
        least, known = self._costs.draft_step(1), list(gains)
        for step in range(1, steps + 1):
            known = _merged(known, unfed)
            yield max(self._rates(known, self.spent + step * least))

    def _one_step(self, gains: Sequence[float], fed: Sequence[float]) -> float:
        """If the nodes fed were certain of their children."""
        return max(self._rates(_merged(gains, fed), self.spent + self._costs.draft_step(len(fed))))

    def _rates(self, gains: Sequence[float], spent: float) -> Iterator[float]:
        """Tokens for a unit of cost, of trees of no node, of one, ..."""
        tokens = accumulate(gains, initial=1.0)
        return map(truediv, tokens, map(add, repeat(spent), self._pass))


def _merged(gains: Sequence[float], more: Sequence[float]) -> list[float]:
    return sorted([*gains, *more], reverse=True)
