"""A drafter of one text, without a service: prompt lookup and the draft model, as the service has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.constraint import Constraint, Past
from hetspec.drafting.draft_model import DraftModel, DraftRequest
from hetspec.drafting.draft_state import DraftState
from hetspec.drafting.growth import Growth
from hetspec.drafting.lookup import NgramIndex
from hetspec.model.transformer import Rows
from hetspec.rpc.messages import Draft, DraftPolicy
from hetspec.training.speculation.rounds import Task
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL


class Drafter:
    """Tells the draft model of the target's rows only when it is asked."""

    def __init__(self, model: DraftModel | None, task: Task) -> None:
        self._model = model if DRAFT_SOURCE_MODEL in task.policy.sources else None
        self._task = task
        self._state = DraftState(NgramIndex(), self._model.new_state() if self._model else None)
        self.outputs: dict[int, Rows] = {}  # [hidden], of the last draft's nodes that the draft model was fed
        self._untold: list[Rows] = []  # rows of committed tokens that the draft model was not given yet
        self._adjuster = Adjuster(task.sampling, Constraint(), Past(), None)

    def append(self, tokens: Sequence[int]) -> None:
        self._state.append(tokens)

    def draft(self, depth: int) -> Draft:
        """At most `depth` levels."""
        policy, self.outputs = self._task.policy, {}
        if not policy.sources or depth < 1:
            return Draft()
        limited = replace(policy, max_depth=min(depth, policy.max_depth))
        growth = self._state.new_growth(limited)
        self._ask_model(growth, limited)
        known, kept = growth.nodes.outputs, growth.finish().kept
        self.outputs = {place: known[node] for place, node in enumerate(kept) if node in known}
        return self._state.finish(growth)

    def commit(self, nodes: Sequence[int], rows: Rows) -> None:
        """rows: the target's, of the tokens appended since the last commit and of these nodes of the last tree."""
        self._state.keep(nodes)
        if self._model is not None:
            self._untold.append(rows)

    def release(self) -> None:
        self._state.release()

    def _ask_model(self, growth: Growth, policy: DraftPolicy) -> None:
        if self._model is None:
            return
        self._state.give(np.concatenate(self._untold))
        self._untold.clear()
        state = self._state.model_to_ask(growth, policy, self._model.transformer.max_context)
        if state is not None:
            task, position = self._task, len(self._state.index)
            request = DraftRequest(state, growth, task.sampling, task.noise, position, self._adjuster)
            self._model.grow([request], lambda: False)
