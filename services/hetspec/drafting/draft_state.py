"""What a drafter keeps of a text, and how a draft of it begins and ends, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetspec.drafting.growth import Growth
from hetspec.drafting.lookup import NgramIndex
from hetspec.drafting.model_state import ModelState
from hetspec.model.transformer import Rows
from hetspec.rpc.messages import Draft, DraftPolicy
from hetspec.v1.drafter_pb2 import DRAFT_SOURCE_LOOKUP, DRAFT_SOURCE_MODEL


class DraftState:
    """The text's n-grams and, with a draft model, that one's state. `tree_tokens` are the last draft's."""

    def __init__(self, index: NgramIndex, model: ModelState | None) -> None:
        self.index = index
        self.model = model
        self.tree_tokens: tuple[int, ...] = ()

    def append(self, tokens: Sequence[int]) -> None:
        """Committed tokens that no draft held."""
        self.index.extend(tokens)
        if self.model is not None:
            self.model.append(tokens)

    def give(self, features: Rows) -> None:
        """The target's hidden rows before the last committed tokens."""
        if self.model is not None:
            self.model.give(features)

    def look_up(self, growth: Growth, policy: DraftPolicy, allowed: Callable[[Sequence[int]], int] = len) -> None:
        """Runs that occurred before, where the policy asks for them. allowed: how far a run may go, in tokens."""
        if DRAFT_SOURCE_LOOKUP in policy.sources:
            for tokens, confidence in self.index.continuations(policy.width, policy.max_depth):
                growth.add_run(tokens[: allowed(tokens)], confidence, DRAFT_SOURCE_LOOKUP)

    def model_to_ask(self, growth: Growth, policy: DraftPolicy, max_context: int) -> ModelState | None:
        """The draft model's state, set to grow the tree on: where the policy asks for it, it is ready, and there are
        positions for it within `max_context` and something left to propose."""
        model, position = self.model, len(self.index)
        wanted = DRAFT_SOURCE_MODEL in policy.sources and position + policy.max_depth <= max_context
        if model is None or not model.is_ready or not wanted or growth.is_decided:
            return None
        model.rewind(self.index.last)
        return model

    def finish(self, growth: Growth) -> Draft:
        """The draft that grew, remembered for what `keep` will name of it."""
        draft, fed = growth.draft()
        self.tree_tokens = draft.tree.tokens
        if self.model is not None:
            self.model.remember(fed)
        return draft

    def keep(self, nodes: Sequence[int]) -> None:
        """These nodes of the last draft, a path from its first level, are committed; the rest of it is dropped."""
        tokens = [self.tree_tokens[node] for node in nodes]
        self.index.extend(tokens)
        if self.model is not None:
            self.model.keep(nodes, tokens)
        self.tree_tokens = ()

    def fork(self, length: int) -> DraftState:
        """A twin of the first `length` committed tokens. Raises CacheFullError."""
        return DraftState(self.index.copy(length), self.model.fork(length) if self.model else None)

    def release(self) -> None:
        if self.model is not None:
            self.model.release()
