"""A drafter that holds the target: its process serves a verifier's contract, too, on the same thread."""

from __future__ import annotations

from dataclasses import replace

from drafter.config import DrafterSettings
from hetspec.rpc.contracts import PRE_VERIFY
from hetspec.rpc.messages import HiddenStates, VerifyItem
from hetspec.rpc.unit import LoadedUnit, Offer
from hetspec.verification.unit import load_target

_MAX_ROWS = 512  # of a pass


def held_target(settings: DrafterSettings) -> tuple[Offer[VerifyItem, HiddenStates], ...]:
    """What is offered beside drafts; nothing unless the settings say so."""
    return (Offer(PRE_VERIFY, lambda: _load(settings)),) if settings.holds_target else ()


def _load(settings: DrafterSettings) -> LoadedUnit[VerifyItem, HiddenStates]:
    """All layers stay in memory, mapped from the same pack as the verifier's. Raises as `load_target`."""
    loaded = load_target(
        "drafter", settings, max_rows=_MAX_ROWS, max_context=settings.max_context, kv_tokens=settings.kv_tokens
    )
    operators = loaded.operators
    return replace(loaded, operators=lambda: [replace(each, group=f"target {each.group}") for each in operators()])
