"""What the verification of a batch of a tree may come to (AHASD, arXiv 2604.25326, section 4).

It accepts nodes down to some end, and what follows there is a token that the tree does not hold below that end: the
bonus. Its chance is that token's gain. So the likeliest outcomes are the proposed tokens of the highest gain that hang
below the batch's nodes and are not of the tree. Of an end that was never fed to the draft model nothing is known but
its own gain, which none below it exceeds.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetspec.decoding.tree import ROOT
from hetspec.drafting.best import Best
from hetspec.drafting.nodes import Nodes
from hetspec.rpc.messages import LookAhead


class Outcomes:
    """Of the batch of `tree` (nodes, in the order in which they were returned) that `look` names."""

    def __init__(self, nodes: Nodes, tree: Sequence[int], look: LookAhead) -> None:
        """Raises ValueError where `since` is no node of the tree."""
        self.ends = [*([ROOT] if look.since == 0 else []), *tree[look.since :]]
        if not self.ends:
            raise ValueError(f"look_ahead.since = {look.since}, must be below the tree's {len(tree)} nodes")
        self._nodes = nodes
        self._tree = frozenset(tree)
        self._count = look.outcomes

    def likeliest(self, at_most: int, min_gain: float, sources: Sequence[int]) -> list[int]:
        """Of those that are known, best first."""
        nodes, ends = self._nodes, set(self.ends)
        bonuses = (i for i in range(len(nodes)) if nodes[i].parent in ends and i not in self._tree)
        best = Best(min(self._count, at_most), min_gain)
        best.fill((i, nodes.gain(i)) for i in bonuses if nodes[i].source in sources)
        return list(best)

    def unknown(self, likeliest: Sequence[int], min_gain: float) -> list[int]:
        """Ends that were not fed and that an outcome could be behind which is likelier than the least of these; best
        first."""
        is_full = len(likeliest) == self._count
        bar = self._nodes.gain(likeliest[-1]) if is_full else 0.0
        unfed = [(-self._nodes.gain(end), end) for end in self.ends if not self._nodes.is_fed(end)]
        return [end for gain, end in sorted(unfed) if -gain > bar and -gain >= min_gain]
