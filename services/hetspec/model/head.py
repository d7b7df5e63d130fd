"""Final norm and LM head: hidden rows to logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetspec.model.projection import HEAD, Projection
from hetspec.model.residency import WeightReader


class Head:
    """`logits` of a row do not depend on the rows beside it.

    ids: of a trimmed head, the token of each logit, ascending; None: every token of the vocabulary, in order.
    """

    def __init__(self, reader: WeightReader, *, threads: int) -> None:
        config = reader.layout.config
        self.vocab_size, self.hidden_size = config.vocab_size, config.hidden_size
        self._projection = Projection(reader, HEAD, config.head_rows, threads=threads)
        self.clocks = self._projection.clocks
        views = reader.layout.views("head", self._projection.segment)
        self.ids: NDArray[np.intp] | None = views["ids"].astype(np.intp) if "ids" in views else None

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """hidden: float32 [rows, hidden_size], before the final norm; returns float32 [rows, vocab_size or ids]."""
        return self._projection.project(hidden)

    def close(self) -> None:
        self._projection.close()
