"""Drops drafted nodes of a pass where the predictor gives them little chance, after the layer it was made for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.noise import tree_noise
from hetspec.model.early_exit import DraftedRows
from hetspec.model.early_exit_artefact import EarlyExitArtefact
from hetspec.model.transformer import Look, Rows, Transformer
from hetspec.rpc.messages import VerifyItem
from hetspec.v1.drafter_pb2 import DraftSource

_SOURCES = frozenset(DraftSource.values())


class EarlyExit:
    """By a predictor that has a threshold. layer: how many layers of a pass lie before it. recall: as
    it was fitted."""

    def __init__(self, artefact: EarlyExitArtefact, transformer: Transformer) -> None:
        """Raises ValueError for a predictor that was made for another model."""
        config, target = artefact.config, transformer.config
        if config.hidden_size != target.hidden_size or not config.layer < target.n_layers:
            shape = f"{target.hidden_size} and {target.n_layers} layers"
            raise ValueError(f"early exit: hidden_size = {config.hidden_size}, layer = {config.layer}; target: {shape}")
        assert config.threshold is not None
        self.layer, self.recall, self._threshold = config.layer, config.recall, config.threshold
        self._predictor = artefact.predictor()
        self._transformer = transformer

    def looks(self, items: Sequence[VerifyItem]) -> dict[int, Look]:
        """Of a pass over these items, for `Transformer.run`; none where no item wants it."""
        if not any(item.early_exit is not None and len(item.tree) for item in items):
            return {}
        return {self.layer: lambda rows: self._going_on(items, rows)}

    def _going_on(self, items: Sequence[VerifyItem], rows: Rows) -> NDArray[np.bool_]:
        """Item by item, so that what is dropped of one does not depend on its neighbours, not even by rounding."""
        going_on = np.ones(len(rows), np.bool_)
        first = 0
        for item in items:
            root, end = first + len(item.update.append) - 1, first + len(item.update.append) + len(item.tree)
            if item.early_exit is not None and len(item.tree):
                going_on[root:end] = self._keeps(item, rows[root:end])
            first = end
        return going_on

    def _keeps(self, item: VerifyItem, rows: Rows) -> NDArray[np.bool_]:
        """rows: of the item's last token, which stays, and its nodes."""
        assert item.early_exit is not None
        told, last = item.early_exit, item.update.append[-1]
        noise = tree_noise(item.tree, told.temperature, told.noise, item.update.length)
        drafted = DraftedRows.of(last, item.tree, told.probabilities, told.sources, noise)
        embeddings = self._transformer.embeddings((last, *item.tree.tokens))
        kept = self._predictor.keeps(drafted, rows, embeddings, self._threshold)
        kept[0] = True
        return kept


def check_early_exit(item: VerifyItem) -> None:
    """Raises ValueError unless each node of the tree has its probability and its source, and the target can choose."""
    told, nodes = item.early_exit, len(item.tree)
    if told is None:
        return
    for name, count in (("probabilities", len(told.probabilities)), ("sources", len(told.sources))):
        if count != nodes:
            raise ValueError(f"early_exit.{name}: {count} for {nodes} nodes")
    for i, probability in enumerate(told.probabilities):
        if not 0 <= probability <= 1:
            raise ValueError(f"early_exit.probabilities[{i}] = {probability}, must be in [0, 1]")
    if not 0 <= told.temperature < math.inf:
        raise ValueError(f"early_exit.temperature = {told.temperature}, must be >= 0")
    if unknown := set(told.sources) - _SOURCES:
        raise ValueError(f"early_exit.sources: {min(unknown)} is not known")
