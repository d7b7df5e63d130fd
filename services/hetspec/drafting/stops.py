"""Where a policy's rule has ended chains of a tree that grows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hetspec.drafting.nodes import Nodes
from hetspec.drafting.stop_rule import StopRule


class Stops:
    def __init__(self, rule: StopRule | None, nodes: Nodes) -> None:
        """rule None: nothing is ended. nodes: each fed one's proposal is there before it is asked about."""
        self._rule = rule
        self._nodes = nodes
        self._ended: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._ended)

    def __contains__(self, node: int) -> bool:
        """Whether the draft model drafts nothing below it."""
        return node in self._ended

    def ends_before(self, node: int, length: int) -> bool:
        """Whether a chain of so many tokens ends with the node, which was fed. 0: it is about to begin below it."""
        if self._rule is None or length == 0:
            return False
        ends = self._rule.ends_before(self._nodes.proposals[node].entropy, self._acceptances(node, length))
        if ends:
            self._ended.add(node)
        return ends

    def drafted(self, node: int, children: Iterable[int]) -> None:
        """Below the node that was fed."""
        if self._rule is not None and self._rule.ends_after(self._nodes.proposals[node].entropy):
            self._ended.update(children)

    def _acceptances(self, node: int, length: int) -> Iterator[float]:
        """Of a chain's tokens, from the last one up, as far as they were judged."""
        for _ in range(length):
            if (acceptance := self._nodes.proposals[node].acceptance) is not None:
                yield acceptance
            node = self._nodes[node].parent
