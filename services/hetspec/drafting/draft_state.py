"""What a drafter keeps of a text, and how a draft of it begins and ends, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetspec.drafting.copies import Copies
from hetspec.drafting.growing import Growing, Grown
from hetspec.drafting.growth import Growth
from hetspec.drafting.look_ahead import LookAheadGrowth
from hetspec.drafting.lookup import NgramIndex
from hetspec.drafting.model_state import ModelState
from hetspec.drafting.nodes import Nodes
from hetspec.model.transformer import Rows
from hetspec.rpc.messages import Draft, DraftPolicy, LookAhead
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_GRAMMAR, DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL

_NOTHING = Grown(Nodes(), (), Draft())


class DraftState:
    """The text's n-grams and, with a draft model, that one's state; the last draft, and what was found out for it."""

    def __init__(self, index: NgramIndex, model: ModelState | None) -> None:
        self.index = index
        self.model = model
        self._last = _NOTHING

    def append(self, tokens: Sequence[int]) -> None:
        """Committed tokens that no draft held."""
        self.index.extend(tokens)
        if self.model is not None:
            self.model.append(tokens)

    def give(self, features: Rows) -> None:
        """The target's hidden rows before the last committed tokens."""
        if self.model is not None:
            self.model.give(features)

    def new_growth(
        self, policy: DraftPolicy, allowed: Callable[[Sequence[int]], int] = len, forced: Sequence[int] = ()
    ) -> Growth:
        """Of a new tree, with what must follow, and with runs that occurred before where the policy asks for them.
        allowed: how many tokens of a run may follow."""
        growth = Growth(policy, self._copies(policy, allowed))
        growth.add_run([(token, 1.0) for token in forced], DRAFT_SOURCE_GRAMMAR)
        growth.look_up()
        return growth

    def look_ahead(
        self, look: LookAhead, policy: DraftPolicy, max_nodes: int, allowed: Callable[[Sequence[int]], int] = len
    ) -> LookAheadGrowth:
        """The last draft, to be grown on to at most `max_nodes` nodes in all. allowed: as in `new_growth`.

        Raises ValueError where `look.since` is no node of it."""
        by_levels = self.model is not None and self.model.by_levels
        return LookAheadGrowth(self._last, look, policy, max_nodes, self._copies(policy, allowed), by_levels)

    def model_to_ask(self, growth: Growing, policy: DraftPolicy, max_context: int) -> ModelState | None:
        """The draft model's state, set to grow the tree on: where the policy asks for it, it is ready, and there are
        positions for it within `max_context` and something left to propose."""
        model, position = self.model, len(self.index)
        wanted = DRAFT_SOURCE_MODEL in policy.sources and position + growth.deepest <= max_context
        if model is None or not model.is_ready or not wanted or growth.is_decided:
            return None
        if not growth.nodes.is_read:
            model.rewind(self.index.last)
        return model

    def finish(self, growth: Growing) -> Draft:
        """The draft that grew, remembered for what `keep` will name of it, and to be grown on."""
        self._last = growth.finish()
        if self.model is not None:
            self.model.remember(self._last.places)
        return self._last.draft

    def keep(self, nodes: Sequence[int]) -> None:
        """These nodes of the last draft, a path from its first level, are committed; the rest of it is dropped."""
        tokens = [self._last.draft.tree.tokens[node] for node in nodes]
        self.index.extend(tokens)
        if self.model is not None:
            self.model.keep(nodes, tokens)
        self._last = _NOTHING

    def fork(self, length: int) -> DraftState:
        """A twin of the first `length` committed tokens. Raises CacheFullError."""
        return DraftState(self.index.copy(length), self.model.fork(length) if self.model else None)

    def release(self) -> None:
        if self.model is not None:
            self.model.release()

    def _copies(self, policy: DraftPolicy, allowed: Callable[[Sequence[int]], int]) -> Copies:
        return Copies(self.index if DRAFT_SOURCE_LOOKUP in policy.sources else None, allowed)
