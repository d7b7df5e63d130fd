"""What a sampler does: final norm, LM head and the decoding rule, along the accepted paths of verified trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.walk import Row, Steps, WalkSpec, walk
from hetspec.rpc.messages import (
    ErrorCode,
    PassResult,
    Rows,
    TokenLogprobs,
    UnitError,
    Walk,
    WalkItem,
    WorkTrace,
    rows_from_bytes,
)
from hetspec.rpc.work import ShouldStop, Stopped

MAX_LOGPROBS = 20


class Head(Protocol):
    """Final norm and LM head. Logits of a row do not depend on the rows beside it."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    def logits(self, hidden: Rows) -> NDArray[np.float32]:
        """float32 [rows, hidden_size], before the final norm -> float32 [rows, vocab_size], the caller's to change."""
        ...


class SamplerEngine:
    """Walks the items of a task in lockstep. Holds no state of a session."""

    def __init__(self, head: Head, missing: NDArray[np.intp], check_weights: Callable[[], None]) -> None:
        """missing: logits that stand for no token. check_weights: raises UnitError when the head is no longer valid."""
        self._head = head
        self._missing = missing
        self._check_weights = check_weights

    def run(self, items: Sequence[WalkItem], should_stop: ShouldStop) -> PassResult[Walk]:
        """A walk an item, or UnitError INVALID for one that breaks the contract. Raises Stopped between steps."""
        self._check_weights()
        checked = [self._check(item) for item in items]
        sound = [entry for entry in checked if not isinstance(entry, UnitError)]
        head_rows = 0

        def project(rows: Sequence[Row]) -> NDArray[np.float32]:
            nonlocal head_rows
            if should_stop():
                raise Stopped
            head_rows += len(rows)
            return self._head.logits(np.stack([sound[i][1][row] for i, row in rows]))

        walks = iter(walk([spec for spec, _ in sound], project, self._missing))
        results = tuple(entry if isinstance(entry, UnitError) else _to_walk(next(walks)) for entry in checked)
        return PassResult(results, WorkTrace(head_rows=head_rows))

    def release(self, sessions: Sequence[str]) -> None:
        """Nothing is held."""

    def _check(self, item: WalkItem) -> tuple[WalkSpec, Rows] | UnitError:
        try:
            return self._spec(item), self._hidden(item)
        except ValueError as error:
            return UnitError(ErrorCode.INVALID, f"{item.session}: {error}")

    def _spec(self, item: WalkItem) -> WalkSpec:
        vocab_size = self._head.vocab_size
        for field, ids in (("tree.tokens", item.tree.tokens), ("end_ids", item.end_ids)):
            for i, token in enumerate(ids):
                if not 0 <= token < vocab_size:
                    raise ValueError(f"{field}[{i}] = {token}, must be in [0, {vocab_size})")
        if item.top_logprobs is not None and not 0 <= item.top_logprobs <= MAX_LOGPROBS:
            raise ValueError(f"top_logprobs = {item.top_logprobs}, must be in [0, {MAX_LOGPROBS}]")
        return WalkSpec(
            item.tree,
            item.sampling,
            item.noise,
            item.position,
            item.max_tokens,
            frozenset(item.end_ids),
            item.top_logprobs,
        )

    def _hidden(self, item: WalkItem) -> Rows:
        hidden = rows_from_bytes(item.hidden, self._head.hidden_size)
        if len(hidden) != 1 + len(item.tree):
            raise ValueError(f"hidden: {len(hidden)} rows, must be 1 + {len(item.tree)} nodes")
        if not np.isfinite(hidden).all():
            raise ValueError("hidden: holds NaN or infinity, must be finite")
        return hidden


def _to_walk(steps: Steps) -> Walk:
    logprobs = tuple(TokenLogprobs(entry.logprob, entry.top_ids, entry.top_logprobs) for entry in steps.logprobs)
    return Walk(tuple(steps.tokens), tuple(steps.accepted), logprobs)
