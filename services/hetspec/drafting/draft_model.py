"""The draft model: keeps its KV in step with what is committed, and proposes what may come next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.choose import perturbed
from hetspec.decoding.constraint import DeadEnd
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.decoding.tree import ROOT
from hetspec.drafting.growth import Candidate, Growth
from hetspec.model.head import Head
from hetspec.model.kv import KVCache
from hetspec.model.transformer import Rows, Span, Transformer
from hetspec.rpc.messages import WorkTrace
from hetspec.rpc.work import ShouldStop
from hetspec.telemetry.profile import OperatorTotal
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_MODEL

_LAST_STRETCH = 8  # committed tokens that go together with other sessions' in the first draft step
_COMPARED = 8  # candidates among which a perturbed score is turned into a probability


@dataclass(slots=True)
class ModelState:
    """A session's draft KV. behind: committed tokens not in it yet. slots: of the last tree's nodes, where fed."""

    cache: KVCache
    behind: list[int]
    slots: list[int | None]

    def remember(self, fed: Sequence[int | None]) -> None:
        """The nodes of a finished draft, by their places among the fed ones."""
        self.slots = [None if place is None else self.cache.length + place for place in fed]

    def rewind(self, last: int) -> None:
        """Puts `last`, the last committed token, behind again where nothing else is: a draft starts from its row.

        Its KV is written once more, with the same bits.
        """
        if not self.behind:
            self.cache.length -= 1
            self.behind.append(last)

    def keep(self, nodes: Sequence[int], tokens: Sequence[int]) -> None:
        """Moves what is held of the accepted path into the committed part; the rest has to be fed again."""
        held = 0
        while held < len(nodes) and self.slots[nodes[held]] is not None:
            held += 1
        self.cache.keep([slot for node in nodes[:held] if (slot := self.slots[node]) is not None])
        self.behind.extend(tokens[held:])
        self.slots = []

    def fork(self, length: int) -> ModelState:
        """A twin of the first `length` committed tokens."""
        held = self.cache.length
        return ModelState(self.cache.fork(min(length, held)), self.behind[: max(0, length - held)], [])


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One session's tree about to be grown. position: of the first token to draft. adjuster: as the target's sampler
    will use it, so that what the request changes of the logits costs no acceptance."""

    state: ModelState
    growth: Growth
    sampling: Sampling
    noise: NoiseKey
    position: int
    adjuster: Adjuster


class DraftModel:
    """Grows the trees of several sessions in lockstep: a draft step is one pass over all of them that fit in one."""

    def __init__(self, transformer: Transformer, head: Head, barred: NDArray[np.intp]) -> None:
        """barred: ids that are never proposed, because they stand for no token of the draft or of the target."""
        self.transformer = transformer
        self._head = head
        self._barred = barred
        self._steps: list[int] = []
        self._kv_len: list[int] = []
        self._head_rows = 0

    def new_state(self) -> ModelState:
        return ModelState(self.transformer.new_cache(), [], [])

    def grow(self, requests: Sequence[DraftRequest], should_stop: ShouldStop) -> None:
        """Fills the growths. Raises CacheFullError, PassStopped: the sessions are sound then."""
        self._steps, self._kv_len, self._head_rows = [], [], 0
        widest = max(_LAST_STRETCH, *(request.growth.width for request in requests))
        at_once = self.transformer.max_rows // widest
        for i in range(0, len(requests), at_once):
            self._grow_together(requests[i : i + at_once], should_stop)

    def _grow_together(self, requests: Sequence[DraftRequest], should_stop: ShouldStop) -> None:
        for request in requests:
            self._catch_up(request.state, should_stop)
        states = [request.state for request in requests]
        counts = [len(state.behind) for state in states]
        rows = self._pass([Span(state.cache, state.behind) for state in states], should_stop)
        for state in states:
            state.behind.clear()
        for request, span_rows in zip(requests, _split(rows, counts), strict=True):
            self._branch(request, [ROOT], span_rows[-1:])
        while selected := [(p, nodes) for p in requests if (nodes := p.growth.select())]:
            self._step(selected, should_stop)

    def trace(self) -> WorkTrace:
        """Of the last `grow`."""
        layers = (sum(self._steps),) * self.transformer.config.n_layers
        return WorkTrace(layers, tuple(self._kv_len), self._head_rows, tuple(self._steps))

    def operators(self) -> list[OperatorTotal]:
        """Since its making."""
        return self.transformer.clocks.totals() + self._head.clocks.totals()

    def close(self) -> None:
        self.transformer.close()
        self._head.close()

    def _catch_up(self, state: ModelState, should_stop: ShouldStop) -> None:
        """Feeds all but the last stretch of what is committed, so that one pass has room for all sessions' rest."""
        while len(state.behind) > _LAST_STRETCH:
            chunk = state.behind[: min(self.transformer.max_rows, len(state.behind) - 1)]
            self._pass([Span(state.cache, chunk)], should_stop)
            del state.behind[: len(chunk)]

    def _step(self, selected: Sequence[tuple[DraftRequest, list[int]]], should_stop: ShouldStop) -> None:
        spans: list[Span] = []
        for request, nodes in selected:
            tree = request.growth.fed_tree(nodes)
            spans.append(Span(request.state.cache, (), tree, held=len(tree) - len(nodes)))
        rows = self._pass(spans, should_stop)
        for (request, nodes), span_rows in zip(selected, _split(rows, [s.rows for s in spans]), strict=True):
            request.growth.feed(nodes)  # only now: a pass that fails leaves nothing in the KV
            self._branch(request, nodes, span_rows)

    def _branch(self, request: DraftRequest, nodes: Sequence[int], rows: Rows) -> None:
        logits = self._head.logits(rows)
        self._head_rows += len(rows)
        logits[:, self._barred] = -np.inf
        for node, row in zip(nodes, logits, strict=True):
            path = request.growth.path(node)
            request.growth.add(node, self._candidates(request, row, path), DRAFT_SOURCE_MODEL)

    def _candidates(self, request: DraftRequest, logits: NDArray[np.float32], path: Sequence[int]) -> list[Candidate]:
        """Best first; none where the request's grammar leaves none. With noise, a token's chance is its share of the
        perturbed scores: the target draws with the same noise, and differs only as far as its log-probabilities do."""
        position = request.position + len(path)
        try:
            request.adjuster.adjust(logits, path, position)
        except DeadEnd:
            return []
        best = perturbed(logits, request.sampling, request.noise, position, max(request.growth.width, _COMPARED))
        chances = best.probabilities
        if request.sampling.temperature > 0:
            chances = np.exp(best.scores - best.scores[0])
            chances /= chances.sum()
        pairs = zip(best.ids.tolist(), chances.tolist(), strict=True)
        return [(token, max(chance, 1e-6)) for token, chance in pairs][: request.growth.width]

    def _pass(self, spans: Sequence[Span], should_stop: ShouldStop) -> Rows:
        rows, table = self.transformer.run(spans, should_stop)
        self._steps.append(len(rows))
        self._kv_len.extend(table.kv_len)
        return rows


def _split(rows: Rows, counts: Sequence[int]) -> list[Rows]:
    ends = np.cumsum(counts)
    return [rows[end - count : end] for end, count in zip(ends, counts, strict=True)]
