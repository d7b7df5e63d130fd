"""The verifier, loaded: weights, self-check, engine."""

from __future__ import annotations

from hetspec.model.forward import PAGE
from hetspec.model.measure import pass_curve
from hetspec.model.self_check import self_check
from hetspec.model.transformer import Transformer
from hetspec.model.weights import WeightSource, read_early_exit
from hetspec.rpc.messages import HiddenStates, VerifyItem
from hetspec.rpc.messages.draft_costs import curve_to_pb
from hetspec.rpc.unit import LoadedUnit, new_identity, weights_check
from hetspec.v1 import verifier_pb2
from verifier.config import VerifierSettings
from verifier.early_exit import EarlyExit
from verifier.engine import VerifierEngine

MAX_TREE_NODES = 64
"""KV positions kept free of a session alone: one that may be opened can always be finished."""


def load(settings: VerifierSettings) -> LoadedUnit[VerifyItem, HiddenStates]:
    """Raises WeightsError, SelfCheckError, ValueError."""
    source = WeightSource.open(
        settings.weight_store,
        "target",
        settings.precision,
        settings.weights_timeout_s,
        direct=settings.direct_io,
        tls=settings.rpc_tls,
    )
    layer_bytes = source.layout.segments["layers.0"].bytes
    model = Transformer(
        source,
        threads=settings.threads,
        max_rows=settings.max_rows,
        max_context=settings.max_context,
        kv_capacity_tokens=settings.kv_tokens,
        budget_bytes=settings.budget_bytes(layer_bytes * source.layout.config.n_layers),
    )
    identity = new_identity("verifier", source, settings.precision, self_check(model), settings.threads)
    early_exit = _open_early_exit(settings, source, model)
    engine = VerifierEngine(model, weights_check(source), early_exit)
    verify_ns = curve_to_pb(pass_curve(model))

    def describe() -> verifier_pb2.VerifierDescription:
        weights, config = model.weights, model.config
        return verifier_pb2.VerifierDescription(
            identity=identity,
            layers=config.n_layers,
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            max_context=min(model.max_context, model.pool.capacity_tokens - MAX_TREE_NODES),
            max_rows=model.max_rows,
            kv_capacity_tokens=model.pool.capacity_tokens,
            kv_held_tokens=model.pool.held_tokens,
            sessions=len(engine.sessions),
            dram_budget_bytes=weights.budget_bytes,
            weights_resident_bytes=weights.resident_bytes,
            weights_resident_peak_bytes=weights.resident_bytes,
            layers_resident=weights.resident,
            weight_bytes_read=weights.total_bytes_read,
            kv_page_tokens=PAGE,
            verify_ns=verify_ns,
            exit_layer=early_exit.layer if early_exit else 0,
        )

    def close() -> None:
        model.close()
        source.close()

    return LoadedUnit(engine, describe, close, model.clocks.totals)


def _open_early_exit(settings: VerifierSettings, source: WeightSource, model: Transformer) -> EarlyExit | None:
    """The store's predictor, where it has one that drops anything. Raises WeightsError, ValueError."""
    artefact = read_early_exit(settings.weight_store, settings.weights_timeout_s, settings.rpc_tls)
    if artefact is None or artefact.config.threshold is None:
        return None
    made_for, fingerprint = artefact.config.target, source.manifest.fingerprint
    if made_for.fingerprint != fingerprint:
        raise ValueError(f"early exit: made for {made_for.name} ({made_for.fingerprint}), the target is {fingerprint}")
    return EarlyExit(artefact, model)
