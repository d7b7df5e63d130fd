"""What an item must be before the sampler computes anything for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.matcher import Matchers
from hetspec.decoding.walk import WalkSpec
from hetspec.rpc.ids import check_ids, ids_of_rule
from hetspec.rpc.messages import Rows, WalkItem, rows_from_bytes

MAX_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Scoring:
    """Tokens to score: token i by row i of the item's hidden rows."""

    tokens: tuple[int, ...]
    top: int


def checked_walk(item: WalkItem, vocab_size: int, matchers: Matchers | None) -> WalkSpec:
    """Raises ValueError that names the field which breaks the contract."""
    check_ids((("tree.tokens", item.tree.tokens), ("end_ids", item.end_ids)), vocab_size)
    check_ids(ids_of_rule(item.sampling, item.constraint, item.past), vocab_size)
    _check_logprobs(item.top_logprobs)
    grammar = item.constraint.grammar
    matcher = matchers.at(item.session, grammar, item.past.output) if matchers and grammar else None
    return WalkSpec(
        item.tree,
        item.sampling,
        item.noise,
        item.position,
        item.max_tokens,
        frozenset(item.end_ids),
        item.top_logprobs,
        Adjuster(item.sampling, item.constraint, item.past, matcher),
    )


def checked_scoring(item: WalkItem, vocab_size: int) -> Scoring:
    """Raises ValueError."""
    check_ids((("scored", item.scored),), vocab_size)
    _check_logprobs(item.top_logprobs)
    if item.top_logprobs is None:
        raise ValueError("top_logprobs: absent, must be given to score tokens")
    if len(item.tree):
        raise ValueError(f"tree: {len(item.tree)} nodes, must be empty where tokens are scored")
    return Scoring(item.scored, item.top_logprobs)


def checked_hidden(item: WalkItem, hidden_size: int) -> Rows:
    """Raises ValueError."""
    hidden = rows_from_bytes(item.hidden, hidden_size)
    if item.scored and len(hidden) != len(item.scored):
        raise ValueError(f"hidden: {len(hidden)} rows, must be {len(item.scored)}, one a scored token")
    if not item.scored and len(hidden) != 1 + len(item.tree):
        raise ValueError(f"hidden: {len(hidden)} rows, must be 1 + {len(item.tree)} nodes")
    if not np.isfinite(hidden).all():
        raise ValueError("hidden: holds NaN or infinity, must be finite")
    return hidden


def _check_logprobs(top: int | None) -> None:
    if top is not None and not 0 <= top <= MAX_LOGPROBS:
        raise ValueError(f"top_logprobs = {top}, must be in [0, {MAX_LOGPROBS}]")
