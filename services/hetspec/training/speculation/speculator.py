"""Speculative decoding in one process: rounds as the services run them, without the services.

A round drafts a tree below the last token, runs the target over it in one pass, walks it, and commits what was
accepted. What is emitted is plain decoding's; the rounds show how much each pass was good for, and why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import TokenTree
from hetspec.decoding.walk import Row, Steps, WalkSpec, walk
from hetspec.drafting.draft_model import DraftModel
from hetspec.model.head import Head
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.rpc.messages import Draft
from hetspec.training.speculation.drafter import Drafter
from hetspec.training.speculation.looks import keeping
from hetspec.training.speculation.rounds import PLAIN, Round, Task


class Speculator:
    """A target with its drafter, no session. One `rounds` at a time."""

    def __init__(
        self,
        target: Transformer,
        head: Head,
        *,
        missing: NDArray[np.intp],
        end_ids: frozenset[int],
        draft: DraftModel | None = None,
    ) -> None:
        """missing: the target's logits that stand for no token. draft: None leaves prompt lookup."""
        self.target = target
        self.head = head
        self.missing = missing
        self.end_ids = end_ids
        self.draft = draft

    def rounds(self, task: Task, layers: Sequence[int] = ()) -> Iterator[Round]:
        """Until `max_tokens` are emitted, an end id is, or the context is full. layers: which to look at, from 1."""
        text = _Text(self, task)
        try:
            text.read_prompt()
            while text.goes_on():
                yield text.round(layers)
        finally:
            text.release()

    def plain(self, task: Task) -> list[int]:
        """What plain decoding emits."""
        return [token for one in self.rounds(replace(task, policy=PLAIN)) for token in one.emitted]

    def close(self) -> None:
        for part in (self.target, self.head, self.draft):
            if part is not None:
                part.close()


class _Text:
    """One text in progress. `pending` tokens are decided but in no KV yet."""

    def __init__(self, models: Speculator, task: Task) -> None:
        self._models = models
        self._task = task
        self._cache = models.target.new_cache()
        self._drafter = Drafter(models.draft, task)
        self._pending = list(task.prompt)
        self._emitted: list[int] = []

    def read_prompt(self) -> None:
        """All but a last stretch that fits in one pass."""
        target = self._models.target
        while len(self._pending) > target.max_rows:
            chunk = self._pending[: target.max_rows]
            self._drafter.append(chunk)
            rows, _ = target.run([Span(self._cache, chunk)])
            self._drafter.commit((), rows)
            del self._pending[: len(chunk)]

    def goes_on(self) -> bool:
        ended = bool(self._emitted) and self._emitted[-1] in self._models.end_ids
        return not ended and self._left > 0 and self._room >= 0

    @property
    def _left(self) -> int:
        return self._task.max_tokens - len(self._emitted)

    @property
    def _room(self) -> int:
        """Positions behind the pending tokens."""
        return self._models.target.max_context - self._cache.length - len(self._pending)

    def round(self, layers: Sequence[int]) -> Round:
        self._drafter.append(self._pending)
        draft = self._drafter.draft(min(self._left - 1, self._room)) if self._emitted else Draft()
        looked: dict[int, Rows] = {}
        span = Span(self._cache, self._pending, draft.tree)
        rows, _ = self._models.target.run([span], looks=keeping(looked, layers))
        root = len(self._pending) - 1  # of the rows
        steps = self._walk(draft.tree, rows[root:])
        self._commit(steps, rows)
        shown = {layer: found[root:] for layer, found in looked.items()}
        return Round(draft, tuple(steps.accepted), tuple(steps.tokens), rows[root:], shown)

    def _walk(self, tree: TokenTree, rows: Rows) -> Steps:
        models, task = self._models, self._task
        position = len(task.prompt) + len(self._emitted)
        spec = WalkSpec(tree, task.sampling, task.noise, position, self._left, models.end_ids)

        def project(wanted: Sequence[Row]) -> NDArray[np.float32]:
            return models.head.logits(np.stack([rows[row] for _, row in wanted]))

        return walk([spec], project, models.missing)[0]

    def _commit(self, steps: Steps, rows: Rows) -> None:
        """rows: of the pending tokens, then of the nodes."""
        below = len(self._pending)
        first_slot = self._cache.length
        self._cache.keep([first_slot + node for node in steps.accepted])
        self._drafter.commit(steps.accepted, rows[[*range(below), *(below + node for node in steps.accepted)]])
        self._emitted += steps.tokens
        self._pending = steps.tokens[len(steps.accepted) :]

    def release(self) -> None:
        self._cache.release()
        self._drafter.release()
