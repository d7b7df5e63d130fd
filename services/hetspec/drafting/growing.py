"""How a tree of tokens grows: what a draft model asks of it, step by step, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hetspec.drafting.nodes import Nodes, Proposal
from hetspec.rpc.messages import Draft


@dataclass(frozen=True, slots=True)
class Grown:
    """A finished draft. kept: what each node of its tree is among all that is known."""

    nodes: Nodes
    kept: tuple[int, ...]
    draft: Draft

    @property
    def places(self) -> list[int | None]:
        """Of each node of the tree, among those that the draft model was fed."""
        return [self.nodes.place(node) for node in self.kept]


class Growing(Protocol):
    """`select` says which nodes to feed next, `finish` what has grown."""

    nodes: Nodes

    @property
    def width(self) -> int:
        """Nodes at most that a step feeds, and children at most that a node gets from a step."""

    @property
    def deepest(self) -> int:
        """The deepest level that a node may stand on."""

    @property
    def is_decided(self) -> bool:
        """Whether nothing that a draft model could propose would be kept."""

    def read(self, rows: int) -> None:
        """The model has read so many committed tokens in the step that begins the draft."""

    def select(self) -> list[int]:
        """Nodes to feed in the next draft step, parents already fed or among them; none when the tree is grown."""

    def feed(self, nodes: Sequence[int]) -> None:
        """The model's KV holds them now, in this order."""

    def branch(self, node: int, proposal: Proposal) -> None:
        """What the model says behind a node that it was fed, or behind ROOT."""

    def finish(self) -> Grown: ...
