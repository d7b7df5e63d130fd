"""Proposals of a real draft model, which is asked where they are not known yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT
from hetspec.drafting.draft_model import DraftModel, DraftRequest
from hetspec.drafting.growing import Grown
from hetspec.drafting.model_state import ModelState
from hetspec.drafting.nodes import Guess, Nodes, Proposal
from hetspec.model.acceptance import AcceptanceHead
from hetspec.model.transformer import Rows
from hetspec.rpc.messages import Draft
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL
from laboratory.errors import StudyError
from laboratory.proposals import WIDTH, Path
from laboratory.record import Answer, Record


class ModelledProposals:
    """Keeps those of one answer. The model's cache holds the whole answer, and is forked for each length that is asked
    about; the tree of all that was asked grows there."""

    def __init__(self, record: Record, model: DraftModel, head: AcceptanceHead | None = None) -> None:
        """head: for `judge`. Raises StudyError where the model reads rows that the record lacks."""
        if model.reads_features and not record.has_rows:
            raise StudyError("the draft reads the target's hidden rows, and the record has none: record with --rows")
        self._record = record
        self._model = model
        self._head = head
        self._place = -1
        self._whole: ModelState | None = None
        self._trees: dict[int, _Tree] = {}  # by length

    def turn_to(self, place: int) -> None:
        if place == self._place:
            return
        self.close()
        self._place = place
        self._whole = self._model.new_state()
        length = len(self._answer.ids)
        self._whole.append(self._answer.ids)
        self._give(self._whole, length, length - 1)
        self._grow(_Tree(self._whole), length)

    def propose(self, length: int, paths: Sequence[Path]) -> list[Proposal]:
        tree = self._trees.get(length)
        if tree is None:
            tree = self._trees[length] = self._plant(length)
        if tree.asks(paths):
            self._grow(tree, length)
        return [tree.found[path] for path in paths]

    def judge(self, length: int, path: Path, probability: float) -> float:
        """See `laboratory.proposals.Judge`; of a path that was proposed for."""
        assert self._head is not None
        row = self._trees[length].output(path)
        (chance,) = self._head.chances(row[None], np.array([probability], np.float32))
        return float(chance)

    def close(self) -> None:
        """Frees what the model holds of the answer."""
        for state in (*(tree.state for tree in self._trees.values()), *([self._whole] if self._whole else [])):
            state.release()
        self._whole, self._place, self._trees = None, -1, {}

    @property
    def _answer(self) -> Answer:
        return self._record.answers[self._place]

    def _plant(self, length: int) -> _Tree:
        assert self._whole is not None
        state = self._whole.fork(length)
        self._give(state, length, 1)
        state.rewind(self._answer.ids[length - 1])
        tree = _Tree(state)
        self._grow(tree, length)
        return tree

    def _give(self, state: ModelState, length: int, count: int) -> None:
        """The rows before the last `count` of the first `length` tokens."""
        if (rows := self._answer.exact_rows) is not None:
            state.give(rows[length - 1 - count : length - 1])

    def _grow(self, tree: _Tree, length: int) -> None:
        about = self._record.about
        sampling, noise = Sampling(about.temperature), NoiseKey(about.seed + self._place)
        adjuster = Adjuster(sampling, Constraint(), Past(), None)
        self._model.grow([DraftRequest(tree.state, tree, sampling, noise, length, adjuster)], lambda: False)


class _Tree:
    """Of all paths that were asked about, as it grows (`hetspec.drafting.growing.Growing`). found: what the model said
    behind each."""

    width = WIDTH
    is_decided = False

    def __init__(self, state: ModelState) -> None:
        self.state = state
        self.nodes = Nodes()
        self.found: dict[Path, Proposal] = {}
        self._levels: list[list[int]] = []  # of nodes to feed

    def asks(self, paths: Sequence[Path]) -> bool:
        """Whether the model has something to say to it."""
        new = [path for path in paths if path not in self.found]
        missing = {path[:depth] for path in new for depth in range(1, len(path) + 1)} - self.found.keys()
        steps: dict[Path, int] = {}  # in which each is fed: as soon as its parent is
        for path in sorted(missing, key=lambda path: (len(path), path)):
            steps[path] = steps.get(path[:-1], -1) + 1
        last = max(steps.values(), default=-1)
        self._levels = [[self._node_at(path) for path, at in steps.items() if at == step] for step in range(last + 1)]
        return bool(missing)

    @property
    def deepest(self) -> int:
        return len(self._levels) + 1

    def read(self, rows: int) -> None: ...

    def select(self) -> list[int]:
        while self._levels:
            if nodes := self._levels.pop(0):
                return nodes
        return []

    def feed(self, nodes: Sequence[int]) -> None:
        self.nodes.feed(nodes)

    def branch(self, node: int, proposal: Proposal) -> None:
        self.nodes.proposals[node] = proposal
        self.found[tuple(self.nodes.path(node))] = proposal

    def finish(self) -> Grown:
        return Grown(self.nodes, (), Draft())

    def output(self, path: Path) -> Rows:
        """float32 [hidden]: the model's, behind the path."""
        return self.nodes.outputs[self._node_at(path)]

    def _node_at(self, path: Path) -> int:
        node = ROOT
        for token in path:
            self.nodes.add(node, [Guess(token, 1.0, DRAFT_SOURCE_MODEL)])
            child = self.nodes.child(node, token)
            assert child is not None
            node = child
        return node
