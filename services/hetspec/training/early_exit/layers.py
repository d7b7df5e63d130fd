"""Fits a predictor to the rows after each candidate layer, and tells which of them saves most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from hetspec.model.early_exit import log_chances
from hetspec.training.early_exit.data import Texts, Trees
from hetspec.training.early_exit.fit import Fitting, fit
from hetspec.training.early_exit.lens import Distilling, Lens, Lesson, distil
from hetspec.training.early_exit.network import DraftAlone, Families, Network, Shape
from hetspec.training.early_exit.report import Candidate
from hetspec.training.early_exit.tables import Tables
from hetspec.training.early_exit.threshold import allowed_losses, cut_of, threshold_of
from hetspec.training.errors import TrainingError
from hetspec.training.progress import Stages

_SLACK = 1e-3  # below a node that is to be kept: what runs adds in another order
_HELD_EVERY = 4  # prompts, one of which is not learned from
_AT_ONCE = 4  # prompts whose families make a step
_ALONE_EPOCHS = 8  # so few weights learn on where the whole network already learns by heart


def is_learned(prompt: int) -> bool:
    """Whether the prompt of that number is learned from. Others say when to stop, and choose threshold and layer."""
    return prompt % _HELD_EVERY != _HELD_EVERY - 1


@dataclass(frozen=True, slots=True)
class Split:
    """learned: trees, of a few prompts each, and whole texts. held: trees of other prompts."""

    learned: Sequence[Trees]
    texts: Texts
    held: Trees

    @classmethod
    def of(cls, trees: Trees, texts: Texts) -> Split:
        """Raises TrainingError where nothing is left to choose by."""
        numbers = np.unique(trees.prompts).tolist()
        held, learned = [n for n in numbers if not is_learned(n)], [n for n in numbers if is_learned(n)]
        if not (held and learned):
            raise TrainingError(f"trees of {len(numbers)} prompts, must be of {_HELD_EVERY} at least")
        parts = [trees.only(learned[first : first + _AT_ONCE]) for first in range(0, len(learned), _AT_ONCE)]
        return cls(parts, texts, trees.only(held))


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
        network = Network(self._lens(layer), self._shape)
        self._fit(network, layer, f"layer {layer}", self._fitting)
        network.round()
        return self._candidate(layer, network), network

    def alone(self) -> DraftAlone:
        torch.manual_seed(self._fitting.seed)
        network = DraftAlone(self._shape.units)
        how = replace(self._fitting, epochs=_ALONE_EPOCHS)
        self._fit(network, min(self._split.held.hidden), "the draft alone", how)
        return network

    def _lens(self, layer: int) -> Lens:
        size = self._tables.embedding.shape[1]
        lens = Lens(size, self._shape.rank, self._shape.bends)
        lesson = Lesson(self._split.texts, layer, self._seen(), self._tables)
        how = Distilling(self._fitting.seed)
        with self._stages.stage(f"distilling layer {layer}", how.steps(len(lesson)), "steps") as bar:
            distil(lens, lesson, how, lambda loss: bar.advance(1, f"loss {loss:.3f}"))
        return lens

    def _seen(self) -> NDArray[np.int64]:
        """Tokens of the texts and of the trees."""
        return np.unique(np.concatenate([self._split.texts.tokens, *(t.drafted.tokens for t in self._split.learned)]))

    def _fit(self, network: Network | DraftAlone, layer: int, name: str, how: Fitting) -> None:
        learned = [self._families(trees, layer) for trees in self._split.learned]
        held = self._families(self._split.held.on_path(), layer)
        with self._stages.stage(f"fitting {name}", how.epochs, "epochs") as bar:
            fit(network, learned, held, how, lambda loss: bar.advance(1, f"loss {loss:.4f}"))

    def _families(self, trees: Trees, layer: int) -> Families:
        return Families.of(trees, layer, self._tables.embedding, self._tables.rms_eps)

    @torch.no_grad()
    def _candidate(self, layer: int, network: Network) -> Candidate:
        held = self._split.held
        drafted = held.drafted
        chances = log_chances(drafted, network(self._families(held, layer)).numpy())[drafted.nodes]
        accepted = held.accepted[drafted.nodes]
        right = chances[accepted]
        threshold = threshold_of(right, allowed_losses(len(right), self._recall))
        if threshold is not None:
            threshold = min(threshold, 0.0) - _SLACK
        return Candidate(layer, threshold, cut_of(chances, accepted, threshold))
