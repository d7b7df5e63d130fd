"""A draft model along texts of the target: what it says at every step of the chain that begins behind each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import TokenTree
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Rows, Span
from hetspec.training.corpus.said import Said
from hetspec.training.speculation.open_draft import DraftParts, OpenDraft

MAX_ROWS = 64  # chains that are drafted side by side


@dataclass(frozen=True, slots=True)
class Followed:
    """step: from 0. rows: int64 [n], of the text, whose next token is guessed. logits: float32 [n, tokens of the head].

    The chain of a row's guess began `step` rows before it; what it was fed since are the text's own tokens.
    """

    step: int
    rows: NDArray[np.int64]
    logits: NDArray[np.float32]


class Follower:
    """Drafts along texts. max_tokens: of a text."""

    def __init__(self, draft: OpenDraft, *, threads: int, max_tokens: int) -> None:
        pages = 2 * MAX_ROWS * 64  # a fork copies a page, and a chain may begin another
        self._parts = DraftParts(
            draft, threads=threads, max_rows=MAX_ROWS, max_context=max_tokens, kv_tokens=max_tokens + pages
        )
        self._barred = np.flatnonzero(np.isin(draft.checkpoint.head_ids(), draft.barred))  # of the logits
        self._first = int(draft.pack.layout.config.reads_features)  # the first token that has a row

    def follow(self, one: Said, starts: Sequence[int], steps: int) -> Iterator[Followed]:
        """Chains behind these rows of the text, ascending, as far as the text goes."""
        starts = [row for row in starts if row >= self._first]
        cache = self._parts.transformer.new_cache()
        outputs = self._read(one, cache)
        for i in range(0, len(starts), MAX_ROWS):
            yield from self._chains(one, cache, outputs, np.array(starts[i : i + MAX_ROWS]), steps)
        cache.release()

    def close(self) -> None:
        self._parts.close()

    def _read(self, one: Said, cache: KVCache) -> Rows:
        """Outputs behind every token that has a row: [tokens - first, hidden]."""
        ids = one.tokens[self._first :].tolist()
        added = self._added(one.hidden[: len(ids)].astype(np.float32)) if self._first else None
        outputs: list[Rows] = []
        for i in range(0, len(ids), MAX_ROWS):
            part = None if added is None else added[i : i + MAX_ROWS]
            outputs.append(self._parts.transformer.run([Span(cache, ids[i : i + MAX_ROWS], added=part)])[0])
        return np.concatenate(outputs)

    def _chains(
        self, one: Said, cache: KVCache, outputs: Rows, starts: NDArray[np.int64], steps: int
    ) -> Iterator[Followed]:
        rows = outputs[starts - self._first]
        yield Followed(0, starts, self._logits(rows))
        forks = [cache.fork(start - self._first + 1) for start in starts.tolist()]
        for step in range(1, steps):
            starts = starts[starts + step < len(one)]  # they ascend: the first of the forks remain
            if not len(starts):
                break
            going = zip(forks, starts.tolist(), rows, strict=False)
            spans = [self._span(one, fork, start, step, row) for fork, start, row in going]
            rows = self._parts.transformer.run(spans)[0]
            yield Followed(step, starts + step, self._logits(rows))
        for fork in forks:
            fork.release()

    def _span(self, one: Said, cache: KVCache, start: int, step: int, above: NDArray[np.float32]) -> Span:
        """above: the output of the row before, which stands for a feature."""
        tree = TokenTree.chain(one.tokens[start + 1 : start + step + 1].tolist())
        return Span(cache, (), tree, held=step - 1, added=self._added(above[None]) if self._first else None)

    def _added(self, features: Rows) -> Rows:
        assert self._parts.features is not None
        return self._parts.features.project(features)

    def _logits(self, rows: Rows) -> NDArray[np.float32]:
        logits = self._parts.head.logits(rows)
        logits[:, self._barred] = -np.inf
        return logits
