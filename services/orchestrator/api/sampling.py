"""The fields that decide how a token is chosen, as the decoding rule takes them."""

from __future__ import annotations

from collections.abc import Mapping

from hetspec.decoding.sampling import Sampling
from hetspec.text.vocabulary import Vocabulary
from orchestrator.api.errors import invalid
from orchestrator.api.schemas import GenerationBody


def sampling_of(body: GenerationBody, vocabulary: Vocabulary) -> Sampling:
    """Raises ApiError that names a bias of no token."""
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k or 0,
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        bias=_bias(body.logit_bias or {}, vocabulary),
    )


def _bias(logit_bias: Mapping[str, float], vocabulary: Vocabulary) -> tuple[tuple[int, float], ...]:
    """By ascending ids, without what changes nothing."""
    for token in logit_bias:
        if int(token) not in vocabulary.tokens:
            raise invalid(f"logit_bias.{token}", f"logit_bias.{token}: the model has no token of this id")
    return tuple(sorted((int(token), bias) for token, bias in logit_bias.items() if bias != 0))
