"""What is known of the tokens that may follow a text: proposed ones, and what a draft model holds of them.

A node's gain is the product of the chances of acceptance from the root to it (Lever, section 1; EAGLE-2, arXiv
2406.16858). It never exceeds its parent's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hetspec.decoding.tree import ROOT, TokenTree
from hetspec.drafting.calibration import CalibrationMap
from hetspec.model.transformer import Rows
from hetspec.rpc.messages import Draft
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL

Candidate = tuple[int, float]  # token, probability given its parent


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a draft model says of a place. candidates: best first; none where a grammar leaves none. entropy: in nats,
    of its distribution there, after what the request asks for (temperature and filters too) and before the noise.
    acceptance: the chance of the place's own token, where an acceptance head was asked."""

    candidates: Sequence[Candidate]
    entropy: float
    acceptance: float | None = None


class Guess(NamedTuple):
    token: int
    probability: float  # given its parent
    source: int


class Node(NamedTuple):
    token: int
    parent: int
    depth: int
    probability: float  # as it was told
    chance: float  # of acceptance, given its parent
    gain: float
    source: int
    entropy: float  # of the draft model's distribution that proposed it; 0 where another source did


class Nodes:
    """Grows only, and parents come before children. outputs: float32 [hidden], of each node that a draft model was fed,
    and of ROOT. proposals: what it said behind each of these."""

    def __init__(self, calibration: CalibrationMap | None = None) -> None:
        """calibration None: probabilities are taken at their word."""
        self.outputs: dict[int, Rows] = {}
        self.proposals: dict[int, Proposal] = {}
        self._calibration = calibration
        self._fixed: frozenset[int] = frozenset()
        self._all: list[Node] = []
        self._children: dict[tuple[int, int], int] = {}
        self._places: dict[int, int] = {}  # of fed nodes, in the order of their feeding

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, node: int) -> Node:
        return self._all[node]

    @property
    def is_read(self) -> bool:
        """Whether a draft model has read the text that they follow."""
        return ROOT in self.proposals

    def copy(self, fixed: Sequence[int]) -> Nodes:
        """fixed: nodes whose estimates stay as they are, whatever another source finds."""
        twin = Nodes(self._calibration)
        twin._fixed = frozenset(fixed)
        twin.outputs, twin.proposals = self.outputs.copy(), self.proposals.copy()
        twin._all, twin._children, twin._places = self._all.copy(), self._children.copy(), self._places.copy()
        return twin

    def add(self, parent: int, guesses: Sequence[Guess], entropy: float = 0.0) -> bool:
        """Children of `parent` (a node, or ROOT). Of a known one this is the better estimate, unless it was certain.
        entropy: of the draft model's distribution there. Returns whether a known one's gain changed."""
        depth, gain, is_changed = self.depth(parent) + 1, self.gain(parent), False
        for guess, chance in zip(guesses, self._chances(guesses, depth), strict=True):
            told = entropy if guess.source == DRAFT_SOURCE_MODEL else 0.0
            node = Node(guess.token, parent, depth, guess.probability, chance, gain * chance, guess.source, told)
            known = self._children.get((parent, guess.token))
            if known is None:
                self._children[parent, guess.token] = len(self._all)
                self._all.append(node)
            elif self._all[known].chance < 1 and known not in self._fixed:
                is_changed |= self._change(known, node)
        return is_changed

    def child(self, parent: int, token: int) -> int | None:
        return self._children.get((parent, token))

    def known(self, parent: int, guesses: Sequence[Guess]) -> list[Guess]:
        """Those that children stand for."""
        return [guess for guess in guesses if (parent, guess.token) in self._children]

    def children(self, parent: int, guesses: Sequence[Guess]) -> list[int]:
        """That stand for these, all of which are known."""
        return [self._children[parent, guess.token] for guess in guesses]

    def depth(self, node: int) -> int:
        return 0 if node == ROOT else self._all[node].depth

    def gain(self, node: int) -> float:
        return 1.0 if node == ROOT else self._all[node].gain

    def path(self, node: int) -> list[int]:
        """Tokens from the first level down to `node`; none for ROOT."""
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self._all[node].token)
            node = self._all[node].parent
        return tokens[::-1]

    def feed(self, nodes: Sequence[int]) -> None:
        """The draft model's KV holds them now, in this order."""
        for node in nodes:
            self._places[node] = len(self._places)

    def is_fed(self, node: int) -> bool:
        return node == ROOT or node in self._places

    @property
    def fed_count(self) -> int:
        return len(self._places)

    def place(self, node: int) -> int | None:
        """Among the fed nodes."""
        return self._places.get(node)

    def fed_tree(self, more: Sequence[int]) -> TokenTree:
        """The fed nodes, in the order of their feeding, then `more` whose parents are among them all."""
        return self._tree([*self._places, *more])

    def draft(self, kept: Sequence[int], spent: int) -> Draft:
        nodes = [self._all[i] for i in kept]
        return Draft(
            self._tree(kept),
            tuple([node.probability for node in nodes]),
            tuple([node.source for node in nodes]),
            spent,
            tuple([node.entropy for node in nodes]),
        )

    def _tree(self, order: Sequence[int]) -> TokenTree:
        place = {node: i for i, node in enumerate(order)} | {ROOT: ROOT}
        nodes = [self._all[i] for i in order]
        return TokenTree(tuple([node.token for node in nodes]), tuple([place[node.parent] for node in nodes]))

    def _chances(self, guesses: Sequence[Guess], depth: int) -> list[float]:
        if self._calibration is None:
            return [guess.probability for guess in guesses]
        return self._calibration.chances(depth, [(guess.source, guess.probability) for guess in guesses])

    def _change(self, node: int, better: Node) -> bool:
        """Returns whether its gain did, and with it that of all that hangs below."""
        before, self._all[node] = self._all[node], better
        if better.gain == before.gain:
            return False
        for i in range(node + 1, len(self._all)):
            one = self._all[i]
            if (gain := self.gain(one.parent) * one.chance) != one.gain:
                self._all[i] = one._replace(gain=gain)
        return True
