"""Log-probabilities of tokens that are given, such as a prompt's: nothing is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.choose import Logprobs, logprobs_of

Project = Callable[[range], NDArray[np.float32]]
"""Logits of these rows, [len(rows), vocab]; scoring may write to them."""

ROWS_AT_ONCE = 16  # logits of so many rows are held together


def score(tokens: Sequence[int], top: int, project: Project, forbidden: NDArray[np.intp]) -> list[Logprobs]:
    """Of token i by row i, with the `top` best of the row. `forbidden` ids have no probability."""
    scored: list[Logprobs] = []
    for start in range(0, len(tokens), ROWS_AT_ONCE):
        rows = range(start, min(start + ROWS_AT_ONCE, len(tokens)))
        logits = project(rows)
        logits[:, forbidden] = -np.inf
        scored += [logprobs_of(row, tokens[i], top) for i, row in zip(rows, logits, strict=True)]
    return scored
