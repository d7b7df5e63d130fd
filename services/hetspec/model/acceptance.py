"""Whether the target will accept a drafted token (SpecDec++, arXiv 2405.19715): a head on the draft model's output
behind that token, residual blocks and a logistic unit. Unlike the paper's it also knows how likely the draft itself
holds the token, which a head of few examples cannot read from the output. It says when to stop drafting, and never
changes a token."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hetspec.model.early_exit import Rows, rms_norm

Weights = Mapping[str, NDArray[np.float32]]
_LEAST = 1e-6  # probability


class AcceptanceHead:
    """weights, all float32; h is the hidden size, n blocks:

    blocks [n, h, h], block_biases [n, h]: x + silu(block x + bias), one after the other, of a normed row.
    out [h], out_bias [1]: the logit of acceptance; own [1]: to which the log odds of the draft's own probability of the
    token are added so many times.
    """

    def __init__(self, weights: Weights, rms_eps: float) -> None:
        self._weights = weights
        self._eps = rms_eps

    def chances(self, rows: Rows, probabilities: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of the tokens that the draft model's outputs [rows, hidden] stand behind, each given those before it.
        probabilities [rows]: the draft's own."""
        w, x = self._weights, rms_norm(rows, self._eps)
        for block, bias in zip(w["blocks"], w["block_biases"], strict=True):
            inner = x @ block.T + bias
            x = x + inner / (1 + np.exp(-np.maximum(inner, np.float32(-60))))
        logits = x @ w["out"] + w["out_bias"] + w["own"] * log_odds(probabilities)
        chances: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -60.0, 60.0)))
        return chances


def log_odds(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    kept = np.clip(probabilities.astype(np.float64), _LEAST, 1 - _LEAST)
    odds: NDArray[np.float32] = np.log(kept / (1 - kept)).astype(np.float32)
    return odds
