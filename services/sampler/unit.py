"""The sampler, loaded: head, self-check, engine."""

from __future__ import annotations

from hetspec.decoding.grammar import Grammars
from hetspec.decoding.matcher import Matchers
from hetspec.model.head import Head
from hetspec.model.weights import WeightSource
from hetspec.rpc.messages import Walk, WalkItem
from hetspec.rpc.unit import LoadedUnit, new_identity, weights_check
from hetspec.text.vocabulary import Vocabulary
from hetspec.v1 import sampler_pb2
from sampler.config import SamplerSettings
from sampler.engine import MAX_LOGPROBS, SamplerEngine
from sampler.self_check import self_check


def load(settings: SamplerSettings) -> LoadedUnit[WalkItem, Walk]:
    """Raises WeightsError, SelfCheckError, ValueError."""
    source = WeightSource.open(
        settings.weight_store, "target", settings.precision, settings.weights_timeout_s, tls=settings.rpc_tls
    )
    head = Head(source, threads=settings.threads)
    missing = Vocabulary(source.manifest.text.tokenizer_json).missing(head.vocab_size)
    identity = new_identity("sampler", source, settings.precision, self_check(head), settings.threads)
    matchers = Matchers(Grammars(source.manifest.text, head.vocab_size))
    engine = SamplerEngine(head, missing, weights_check(source), matchers)

    def describe() -> sampler_pb2.SamplerDescription:
        return sampler_pb2.SamplerDescription(
            identity=identity,
            hidden_size=head.hidden_size,
            vocab_size=head.vocab_size,
            max_logprobs=MAX_LOGPROBS,
        )

    def close() -> None:
        head.close()
        source.close()

    return LoadedUnit(engine, describe, close, head.clocks.totals)
