"""A draft model whose proposals are known: grows the same trees in the same steps, and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetspec.decoding.tree import ROOT
from hetspec.drafting.costs import LAST_STRETCH
from hetspec.drafting.draft_model import DraftRequest
from hetspec.drafting.feature_state import FeatureState
from hetspec.drafting.model_state import ModelState, TokenState
from hetspec.drafting.nodes import Proposal
from hetspec.model.config import ModelConfig
from hetspec.model.kv import KVCache, PagePool
from hetspec.rpc.messages import WorkTrace
from hetspec.rpc.work import ShouldStop
from laboratory.proposals import Judge, Proposals

_PASS_ROWS = 512  # of the drafter unit's passes
_KV_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class DraftShape:
    """What is known of a draft model without loading it. n_layers, hidden_size: its own."""

    n_layers: int
    hidden_size: int
    reads_features: bool
    max_context: int


class KnownDraftModel:
    """As DraftModel. Sessions keep what it would have read, over a cache whose rows are next to nothing."""

    def __init__(
        self, proposals: Proposals, shape: DraftShape, target: ModelConfig, judge: Judge | None = None
    ) -> None:
        """judge: None where there is no acceptance head."""
        self._proposals = proposals
        self._judge = judge
        self.shape = shape
        self._pool = PagePool(replace(target, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=2), _KV_TOKENS)
        self._steps: list[int] = []
        self._kv_len: list[int] = []
        self._head_rows = 0

    @property
    def reads_features(self) -> bool:
        return self.shape.reads_features

    @property
    def judges_acceptance(self) -> bool:
        return self._judge is not None

    @property
    def hidden_size(self) -> int:
        return self.shape.hidden_size

    @property
    def max_context(self) -> int:
        return self.shape.max_context

    def new_state(self) -> ModelState:
        cache = KVCache(self._pool)
        return FeatureState(cache, self.hidden_size) if self.reads_features else TokenState(cache)

    def grow(self, requests: Sequence[DraftRequest], should_stop: ShouldStop) -> None:
        """One request a pass: an answer is drafted for alone."""
        self._steps, self._kv_len, self._head_rows = [], [], 0
        for request in requests:
            self._grow(request)

    def trace(self) -> WorkTrace:
        """Of the last `grow`."""
        layers = (sum(self._steps),) * self.shape.n_layers
        return WorkTrace(layers, tuple(self._kv_len), self._head_rows, tuple(self._steps))

    def _grow(self, request: DraftRequest) -> None:
        growth = request.growth
        if not growth.nodes.is_read:
            self._begin(request)
        while nodes := growth.select():
            self._feed(request, nodes)
            self._branch(request, nodes)

    def _begin(self, request: DraftRequest) -> None:
        state = request.state
        while state.waiting > LAST_STRETCH:
            self._read(state, min(_PASS_ROWS, state.waiting - 1))
        request.growth.read(self._read(state, LAST_STRETCH))
        self._branch(request, [ROOT])

    def _read(self, state: ModelState, count: int) -> int:
        rows, cache = len(state.next(count).tokens), state.cache
        cache.reserve(cache.length + rows)
        self._step(range(cache.length + 1, cache.length + rows + 1))
        cache.length += rows
        state.has_read(rows)
        return rows

    def _feed(self, request: DraftRequest, nodes: Sequence[int]) -> None:
        cache, growth = request.state.cache, request.growth
        cache.reserve(cache.length + growth.nodes.fed_count + len(nodes))
        self._step([cache.length + growth.nodes.depth(node) for node in nodes])
        growth.feed(nodes)

    def _step(self, kv_len: Sequence[int]) -> None:
        self._steps.append(len(kv_len))
        self._kv_len.extend(kv_len)

    def _branch(self, request: DraftRequest, nodes: Sequence[int]) -> None:
        growth = request.growth
        proposals = self._proposals.propose(request.position, [tuple(growth.nodes.path(node)) for node in nodes])
        for node, found in zip(nodes, proposals, strict=True):
            growth.branch(node, self._judged(request, node, found))
        self._head_rows += len(nodes)

    def _judged(self, request: DraftRequest, node: int, found: Proposal) -> Proposal:
        if self._judge is None or not request.judged or node == ROOT:
            return found
        nodes = request.growth.nodes
        chance = self._judge(request.position, tuple(nodes.path(node)), nodes[node].probability)
        return replace(found, acceptance=chance)
