"""Which tokens a trimmed head knows: those that the target says most often (FR-Spec, arXiv 2502.14856)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetspec.text.tokenizer import TextModel
from hetspec.training.corpus.said import Said
from hetspec.training.corpus.talk import Frame


def count_tokens(said: Iterable[Said], vocab_size: int) -> NDArray[np.int64]:
    """How often each token stands in these conversations: [vocab_size]."""
    counts = np.zeros(vocab_size, np.int64)
    for one in said:
        counts += np.bincount(one.tokens, minlength=vocab_size)
    return counts


def always_known(text: TextModel) -> list[int]:
    """Tokens that every head must have: what ends an answer, and the chat template's own."""
    frame = Frame.of(text)
    return sorted({*text.spec.end_ids, *frame.head, *frame.tail})


def choose_head_ids(counts: NDArray[np.int64], size: int, always: Sequence[int]) -> NDArray[np.int64]:
    """The `size` most frequent tokens, ascending, `always` among them; of equals the lower id."""
    ranked = counts.copy()
    ranked[list(always)] = np.iinfo(np.int64).max
    return np.sort(np.argsort(-ranked, kind="stable")[:size])
