"""Draws tokens for many rows at once, and keeps what a student is taught: the target's best tokens of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetspec.jit import part

TOP = 16  # best tokens of a row that are kept


class Choices:
    """tokens: int64 [rows]. top_ids: int32 [rows, TOP], best first. top_logprobs: float16 [rows, TOP], without
    temperature."""

    def __init__(self, logits: NDArray[np.float32], temperatures: NDArray[np.float64], uniform: NDArray[np.float64]):
        """temperatures: 0 chooses the best token. uniform: in [0, 1), one a row, decides the others.

        logits: [rows, vocab], overwritten.
        """
        rows = len(logits)
        self.top_ids = np.empty((rows, TOP), np.int32)
        top = np.empty((rows, TOP), np.float32)
        _best(logits, self.top_ids, top)
        best = top[:, :1].copy()
        np.subtract(logits, best, out=logits)
        weights = np.exp(logits)
        self.top_logprobs = (top - best - np.log(weights.sum(axis=1, dtype=np.float64))[:, None]).astype(np.float16)
        self.tokens = self.top_ids[:, 0].astype(np.int64)
        drawn = np.flatnonzero(temperatures > 0)
        if len(drawn):
            scaled = np.exp(logits[drawn] / temperatures[drawn, None].astype(np.float32))
            self.tokens[drawn] = _draw(scaled, uniform[drawn])


@part
def _best(logits: Any, ids: Any, values: Any) -> None:
    """The TOP largest of each row, largest first; of equals the lower id first."""
    count = ids.shape[1]
    for row in range(logits.shape[0]):
        held = 0
        for token in range(logits.shape[1]):
            value = logits[row, token]
            if held == count and value <= values[row, count - 1]:
                continue
            place = min(held, count - 1)
            while place > 0 and values[row, place - 1] < value:
                values[row, place] = values[row, place - 1]
                ids[row, place] = ids[row, place - 1]
                place -= 1
            values[row, place] = value
            ids[row, place] = token
            held = min(held + 1, count)


@part
def _draw(weights: Any, uniform: Any) -> Any:
    """The token at which the running sum of weights passes its share `uniform` of the whole."""
    tokens = np.empty(weights.shape[0], np.int64)
    for row in range(weights.shape[0]):
        total = 0.0
        for token in range(weights.shape[1]):
            total += weights[row, token]
        wanted = uniform[row] * total
        reached = 0.0
        tokens[row] = weights.shape[1] - 1
        for token in range(weights.shape[1]):
            reached += weights[row, token]
            if reached > wanted:
                tokens[row] = token
                break
    return tokens
