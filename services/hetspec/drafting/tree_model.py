"""What grows trees for a drafter's sessions: a draft model, or what stands for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hetspec.drafting.draft_model import DraftRequest
from hetspec.drafting.model_state import ModelState
from hetspec.rpc.messages import WorkTrace
from hetspec.rpc.work import ShouldStop


class TreeModel(Protocol):
    """See DraftModel."""

    @property
    def reads_features(self) -> bool: ...

    @property
    def judges_acceptance(self) -> bool: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def max_context(self) -> int: ...

    def new_state(self) -> ModelState: ...

    def grow(self, requests: Sequence[DraftRequest], should_stop: ShouldStop) -> None: ...

    def trace(self) -> WorkTrace: ...
