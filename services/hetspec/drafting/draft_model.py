"""The draft model: reads what is committed, and proposes what may come next.

A draft model that reads features (EAGLE, arXiv 2401.15077) is given, beside each committed token, the target's hidden
row of the token before. Below the last of them there are none yet: a drafted token has its parent's output instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT
from hetspec.drafting.candidates import Place, Proposer
from hetspec.drafting.costs import LAST_STRETCH
from hetspec.drafting.feature_state import FeatureState
from hetspec.drafting.growing import Growing
from hetspec.drafting.model_state import ModelState, TokenState
from hetspec.drafting.nodes import Proposal
from hetspec.model.acceptance import AcceptanceHead
from hetspec.model.head import Head
from hetspec.model.projection import Projection
from hetspec.model.self_check import self_check
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.rpc.messages import WorkTrace
from hetspec.rpc.work import ShouldStop
from hetspec.telemetry.profile import OperatorTotal

_HEAD_ROWS = 64  # rows whose logits are held at once
_PROPOSED = 8  # candidates at least that are kept of each place: outcomes that a tree may be drafted on from


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One session's tree about to be grown. `state` is ready; where the tree is new, something of it is waiting (see
    `ModelState.rewind`).

    position: of the first token to draft. adjuster: as the target's sampler will use it, so that what the request
    changes of the logits costs no acceptance. judged: the acceptance head says what it thinks of each node.
    """

    state: ModelState
    growth: Growing
    sampling: Sampling
    noise: NoiseKey
    position: int
    adjuster: Adjuster
    judged: bool = False

    def place(self, node: int) -> Place:
        path = self.growth.nodes.path(node)
        position = self.position + len(path)
        return Place(self.sampling, self.noise, self.adjuster, position, path, max(_PROPOSED, self.growth.width))

    def span(self, nodes: Sequence[int]) -> Span:
        """The tree down to `nodes`, which are fed now."""
        tree = self.growth.nodes.fed_tree(nodes)
        return Span(self.state.cache, (), tree, held=len(tree) - len(nodes))

    def features(self, nodes: Sequence[int]) -> list[Rows]:
        """What they read where the model reads features: their parents' outputs."""
        known = self.growth.nodes
        return [known.outputs[known[node].parent] for node in nodes] if self.state.by_levels else []


class DraftModel:
    """Grows the trees of several sessions in lockstep: a draft step is one pass over all of them that fit in one."""

    def __init__(
        self,
        transformer: Transformer,
        head: Head,
        barred: NDArray[np.intp],
        features: Projection | None = None,
        acceptance: AcceptanceHead | None = None,
    ) -> None:
        """barred: ids that are never proposed, because they stand for no token of the draft or of the target.
        features: of a draft that reads them."""
        self.transformer = transformer
        self._head = head
        self._features = features
        self._acceptance = acceptance
        self._proposer = Proposer(transformer.config.vocab_size, head.ids, barred)
        self._steps: list[int] = []
        self._kv_len: list[int] = []
        self._head_rows = 0

    @property
    def reads_features(self) -> bool:
        return self._features is not None

    @property
    def judges_acceptance(self) -> bool:
        return self._acceptance is not None

    @property
    def hidden_size(self) -> int:
        return self.transformer.config.hidden_size

    @property
    def max_context(self) -> int:
        return self.transformer.max_context

    def self_check(self) -> str:
        """See `hetspec.model.self_check`."""
        return self_check(self.transformer, self._features)

    def new_state(self) -> ModelState:
        cache = self.transformer.new_cache()
        return FeatureState(cache, self.hidden_size) if self.reads_features else TokenState(cache)

    def grow(self, requests: Sequence[DraftRequest], should_stop: ShouldStop) -> None:
        """Fills the growths. Raises CacheFullError, PassStopped: the sessions are sound then."""
        self._steps, self._kv_len, self._head_rows = [], [], 0
        widest = max(LAST_STRETCH, *(request.growth.width for request in requests))
        at_once = self.transformer.max_rows // widest
        for i in range(0, len(requests), at_once):
            self._grow_together(requests[i : i + at_once], should_stop)

    def trace(self) -> WorkTrace:
        """Of the last `grow`."""
        layers = (sum(self._steps),) * self.transformer.config.n_layers
        return WorkTrace(layers, tuple(self._kv_len), self._head_rows, tuple(self._steps))

    def operators(self) -> list[OperatorTotal]:
        """Since its making."""
        parts = (self._features, self.transformer, self._head)
        return [total for part in parts if part is not None for total in part.clocks.totals()]

    def close(self) -> None:
        self.transformer.close()
        self._head.close()
        if self._features is not None:
            self._features.close()

    def _grow_together(self, requests: Sequence[DraftRequest], should_stop: ShouldStop) -> None:
        if new := [one for one in requests if not one.growth.nodes.is_read]:
            self._begin(new, should_stop)
        while selected := [(one, nodes) for one in requests if (nodes := one.growth.select())]:
            features = [row for one, nodes in selected for row in one.features(nodes)]
            rows = self._pass([one.span(nodes) for one, nodes in selected], features, should_stop)
            for one, nodes in selected:
                one.growth.feed(nodes)  # only now: a pass that fails leaves nothing in the KV
            self._branch(selected, rows)

    def _begin(self, requests: Sequence[DraftRequest], should_stop: ShouldStop) -> None:
        """Reads what is committed, and proposes what follows."""
        for one in requests:
            self._catch_up(one.state, should_stop)
        rows = self._read([one.state for one in requests], should_stop)
        for one, read in zip(requests, rows, strict=True):
            one.growth.read(len(read))
        self._branch([(one, [ROOT]) for one in requests], [each[-1:] for each in rows])

    def _catch_up(self, state: ModelState, should_stop: ShouldStop) -> None:
        """Reads all but the last stretch of what is committed, so that one pass has room for all sessions' rest."""
        while state.waiting > LAST_STRETCH:
            self._read([state], should_stop, min(self.transformer.max_rows, state.waiting - 1))

    def _read(self, states: Sequence[ModelState], should_stop: ShouldStop, count: int = LAST_STRETCH) -> list[Rows]:
        """The outputs of the first `count` tokens that wait, of each."""
        stretches = [state.next(count) for state in states]
        spans = [Span(state.cache, stretch.tokens) for state, stretch in zip(states, stretches, strict=True)]
        features = [row for stretch in stretches if stretch.features is not None for row in stretch.features]
        rows = self._pass(spans, features, should_stop)
        for state, stretch in zip(states, stretches, strict=True):
            state.has_read(len(stretch.tokens))
        return rows

    def _branch(self, fed: Sequence[tuple[DraftRequest, Sequence[int]]], rows: Sequence[Rows]) -> None:
        """Proposes what follows the nodes just fed. rows: their outputs."""
        branches = [(one, node) for one, nodes in fed for node in nodes]
        outputs = np.concatenate(rows)
        for (one, node), output in zip(branches, outputs, strict=True):
            one.growth.nodes.outputs[node] = output
        for i in range(0, len(branches), _HEAD_ROWS):
            some = branches[i : i + _HEAD_ROWS]
            logits = self._head.logits(outputs[i : i + _HEAD_ROWS])
            proposed = self._proposer.propose(logits, [one.place(node) for one, node in some])
            for (one, node), found in zip(some, proposed, strict=True):
                one.growth.branch(node, self._judged(one, node, found))
        self._head_rows += len(branches)

    def _judged(self, one: DraftRequest, node: int, found: Proposal) -> Proposal:
        """With what the acceptance head makes of the node."""
        if self._acceptance is None or not one.judged or node == ROOT:
            return found
        nodes = one.growth.nodes
        own = np.array([nodes[node].probability], np.float32)
        (chance,) = self._acceptance.chances(nodes.outputs[node][None], own)
        return replace(found, acceptance=float(chance))

    def _pass(self, spans: Sequence[Span], features: Sequence[Rows], should_stop: ShouldStop) -> list[Rows]:
        """The outputs of each span's rows. features: a row each, [hidden], where the model reads them."""
        if self._features is not None:
            mixed = _split(self._features.project(np.stack(features)), spans)
            spans = [replace(span, added=rows) for span, rows in zip(spans, mixed, strict=True)]
        rows, table = self.transformer.run(spans, should_stop)
        self._steps.append(len(rows))
        self._kv_len.extend(table.kv_len)
        return _split(rows, spans)


def _split(rows: Rows, spans: Sequence[Span]) -> list[Rows]:
    ends = accumulate(span.rows for span in spans)
    return [rows[end - span.rows : end] for end, span in zip(ends, spans, strict=True)]
