"""Fits a predictor to the rows after each candidate layer, and tells which of them saves most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hetspec.model.early_exit import log_chances
from hetspec.training.early_exit.data import Trees
from hetspec.training.early_exit.fit import Fitting, Shape, Tables, begun, fit
from hetspec.training.early_exit.network import DraftAlone, Families, Network
from hetspec.training.early_exit.report import Candidate
from hetspec.training.early_exit.threshold import allowed_losses, cut_of, threshold_of
from hetspec.training.errors import TrainingError
from hetspec.training.progress import Stages

_SLACK = 1e-3  # below a node that is to be kept: what runs adds in another order
_HELD_OUT = 0.3  # of the prompts: they say when to stop, and choose threshold and layer


@dataclass(frozen=True, slots=True)
class Split:
    """learned: the trees of a prompt each. held: of other prompts."""

    learned: Sequence[Trees]
    held: Trees

    @classmethod
    def of(cls, trees: Trees, seed: int) -> Split:
        """Raises TrainingError for trees of a single prompt."""
        order = np.random.default_rng(seed).permutation(np.unique(trees.prompts))
        held = max(1, round(_HELD_OUT * len(order)))
        if held == len(order):
            raise TrainingError("trees of one prompt only, must be of two at least")
        return cls([trees.only([number]) for number in order[held:].tolist()], trees.only(order[:held].tolist()))


def usual_layers(count: int) -> list[int]:
    """Up to three in the first half of so many, its end among them."""
    return sorted({max(1, count * eighths // 8) for eighths in (2, 3, 4)})


class LayerFits:
    """`at` each layer, and `alone` for what the draft's features can do."""

    def __init__(
        self, split: Split, tables: Tables, shape: Shape, fitting: Fitting, recall: float, stages: Stages
    ) -> None:
        self._split = split
        self._tables = tables
        self._shape = shape
        self._fitting = fitting
        self._recall = recall
        self._stages = stages

    def at(self, layer: int) -> tuple[Candidate, Network]:
        torch.manual_seed(self._fitting.seed)
        network = begun(self._split.learned, layer, self._tables, self._shape)
        held = self._fit(network, layer, f"layer {layer}")
        return self._candidate(layer, network, held), network

    def alone(self) -> DraftAlone:
        torch.manual_seed(self._fitting.seed)
        network = DraftAlone(self._shape.units)
        self._fit(network, min(self._split.held.hidden), "the draft alone")
        return network

    def _fit(self, network: Network | DraftAlone, layer: int, name: str) -> Families:
        """What is held out."""
        learned = [self._families(trees, layer) for trees in self._split.learned]
        held = self._families(self._split.held, layer)
        with self._stages.stage(f"fitting {name}", self._fitting.epochs, "epochs") as bar:
            fit(network, learned, held, self._fitting, lambda loss: bar.advance(1, f"loss {loss:.4f}"))
        return held

    def _families(self, trees: Trees, layer: int) -> Families:
        return self._tables.families(trees, layer, self._fitting.off_path)

    def _candidate(self, layer: int, network: Network, held: Families) -> Candidate:
        drafted = self._split.held.drafted
        with torch.no_grad():
            chances = log_chances(drafted, network(held).numpy())[drafted.nodes]
        accepted = self._split.held.accepted[drafted.nodes]
        right = chances[accepted]
        threshold = threshold_of(right, allowed_losses(len(right), self._recall))
        if threshold is not None:
            threshold = min(threshold, 0.0) - _SLACK
        return Candidate(layer, threshold, cut_of(chances, accepted, threshold))
