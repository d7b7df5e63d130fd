"""The verifier, loaded: the target within its budget of memory."""

from __future__ import annotations

from hetspec.rpc.messages import HiddenStates, VerifyItem
from hetspec.rpc.unit import LoadedUnit
from hetspec.verification.unit import load_target
from verifier.config import VerifierSettings


def load(settings: VerifierSettings) -> LoadedUnit[VerifyItem, HiddenStates]:
    """Raises WeightsError, SelfCheckError, ValueError."""
    return load_target(
        "verifier",
        settings,
        max_rows=settings.max_rows,
        max_context=settings.max_context,
        kv_tokens=settings.kv_tokens,
        direct_io=settings.direct_io,
        budget_bytes=settings.budget_bytes,
    )
