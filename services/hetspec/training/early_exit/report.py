"""What is told of an early-exit predictor: what it keeps and drops, beside the draft's features alone, and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.training.early_exit.data import Trees
from hetspec.training.early_exit.threshold import Cut, cut_of, threshold_of

OVERALL = "overall"
Table = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Some trees. alone: what the draft's features alone do where they lose as many accepted nodes."""

    trees: int
    cut: Cut
    alone: Cut

    @property
    def accept_length(self) -> tuple[float, float]:
        """Tokens of a target pass, the bonus counted: with every node verified, and with the kept ones."""
        return 1 + self.cut.accepted / self.trees, 1 + (self.cut.accepted - self.cut.lost) / self.trees


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layer that was tried, on prompts that were not fitted to."""

    layer: int
    threshold: float | None
    cut: Cut


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a node. macs: multiply-adds; the layer's are those of its matrices."""

    predictor_macs: int
    layer_macs: int
    predictor_ns: float
    layer_ns: float


def measured(
    trees: Trees,
    chances: NDArray[np.float64],
    alone: NDArray[np.float64],
    threshold: float | None,
    rows: NDArray[np.bool_] | None = None,
) -> Measured:
    """chances, alone: log chances by row. rows: those of the trees meant; None: all."""
    drafted = trees.drafted
    wanted = np.ones(len(drafted.parents), np.bool_) if rows is None else rows
    nodes = np.flatnonzero((drafted.parents >= 0) & wanted)
    accepted = trees.accepted[nodes]
    cut = cut_of(chances[nodes], accepted, threshold)
    same = threshold_of(alone[nodes][accepted], cut.lost)
    roots = int(np.count_nonzero((drafted.parents < 0) & wanted))
    return Measured(roots, cut, cut_of(alone[nodes], accepted, same))


@dataclass(frozen=True, slots=True)
class EarlyExitReport:
    """groups: OVERALL, by temperature, by category. candidates: empty where no layer was chosen."""

    target: str
    draft: str
    layer: int
    layers: int
    recall: float
    threshold: float | None
    nodes: int
    prompts: int
    threads: int
    groups: Mapping[str, Measured]
    candidates: Sequence[Candidate]
    cost: Cost

    def to_json(self) -> dict[str, Any]:
        told = asdict(self)
        for name, one in self.groups.items():
            shares = {"recall": one.cut.recall, "pruned": one.cut.pruned, "alone_pruned": one.alone.pruned}
            told["groups"][name] |= shares | {"accept_length": one.accept_length}
        for entry, candidate in zip(told["candidates"], self.candidates, strict=True):
            entry |= {"recall": candidate.cut.recall, "pruned": candidate.cut.pruned}
        return told

    def tables(self) -> Iterator[Table]:
        """As the command line prints them."""
        yield self._head()
        if self.candidates:
            yield self._candidates()
        yield self._groups()

    def _head(self) -> Table:
        cost = self.cost
        predictor = f"{cost.predictor_macs / 1e3:.0f} k multiply-adds, {cost.predictor_ns / 1e3:.1f} us a node"
        layer = f"{cost.layer_macs / 1e3:.0f} k multiply-adds, {cost.layer_ns / 1e3:.1f} us a node"
        below = "none: nothing is dropped" if self.threshold is None else f"log chance {self.threshold:.2f}"
        return [
            ("target", self.target),
            ("draft", self.draft),
            (
                "exit",
                f"after layer {self.layer} of {self.layers}, below {below}; recall asked for {self.recall:.2%}",
            ),
            ("predictor", predictor),
            ("a layer", f"{layer} ({self.threads} threads)"),
            ("prompts", f"{self.prompts}, trees of up to {self.nodes} nodes"),
        ]

    def _candidates(self) -> Table:
        rows: Table = [("layer", "threshold", "recall", "others dropped")]
        for one in self.candidates:
            threshold = "none" if one.threshold is None else f"{one.threshold:.2f}"
            rows.append((str(one.layer), threshold, f"{one.cut.recall:.2%}", f"{one.cut.pruned:.1%}"))
        return rows

    def _groups(self) -> Table:
        names = ("trees", "accepted", "recall", "others dropped", "by the draft alone", "accept length", "after")
        rows: Table = [("kept and dropped", *names)]
        for name, one in self.groups.items():
            shares = (f"{one.cut.recall:.2%}", f"{one.cut.pruned:.1%}", f"{one.alone.pruned:.1%}")
            lengths = (f"{length:.3f}" for length in one.accept_length)
            rows.append((name, str(one.trees), str(one.cut.accepted), *shares, *lengths))
        return rows
