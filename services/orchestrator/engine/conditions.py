"""What a round tells units of the request's conditions: what ends it, what may not come yet, what was said so far."""

from __future__ import annotations

from hetspec.decoding.constraint import Constraint, Past
from orchestrator.engine.model import ModelBounds
from orchestrator.engine.request import GenerationRequest
from orchestrator.engine.session import Session


def end_ids(request: GenerationRequest, bounds: ModelBounds) -> tuple[int, ...]:
    """Tokens that end the output."""
    return () if request.ignore_eos else bounds.end_ids


def constraint(request: GenerationRequest, bounds: ModelBounds) -> Constraint:
    if request.min_tokens == 0 or request.ignore_eos:
        return Constraint(grammar=request.grammar)
    withheld_before = len(request.prompt_ids) + request.min_tokens
    return Constraint(bounds.end_ids, withheld_before, request.grammar)


def past(session: Session, foreseen: tuple[int, ...] = (), until: int | None = None) -> Past:
    """As far as the request's penalties and grammar look back; nothing where there are none. foreseen: tokens that
    follow the session's, of which the first `until` count."""
    request = session.request
    if not request.sampling.penalises and request.grammar is None:
        return Past()
    return Past(session.distinct_prompt, (*session.history[len(request.prompt_ids) : until], *foreseen))
