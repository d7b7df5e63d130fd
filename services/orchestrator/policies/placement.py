"""Which replica a new session goes to."""

from __future__ import annotations

TOKENS_A_SESSION = 256


def placement_cost(sessions: int, spared_tokens: int) -> float:
    """The least is best. A replica that spares a session the reading of so many tokens may serve one session more."""
    return sessions - spared_tokens / TOKENS_A_SESSION
