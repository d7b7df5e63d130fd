"""The target, loaded to verify: weights, self-check, engine. A verifier serves it, or a drafter that holds it, too."""

from __future__ import annotations

from collections.abc import Callable

from hetspec.model.forward import PAGE
from hetspec.model.measure import pass_curve
from hetspec.model.self_check import self_check
from hetspec.model.transformer import Transformer
from hetspec.model.weights import WeightSource, read_early_exit
from hetspec.rpc.messages import HiddenStates, VerifyItem
from hetspec.rpc.messages.draft_costs import curve_to_pb
from hetspec.rpc.settings import UnitSettings
from hetspec.rpc.unit import LoadedUnit, new_identity, weights_check
from hetspec.v1 import verifier_pb2
from hetspec.verification.early_exit import EarlyExit
from hetspec.verification.engine import VerifierEngine

MAX_TREE_NODES = 64
"""KV positions kept free of a session alone: one that may be opened can always be finished."""


def load_target(
    unit: str,
    settings: UnitSettings,
    *,
    max_rows: int,
    max_context: int,
    kv_tokens: int,
    direct_io: bool = False,
    budget_bytes: Callable[[int], int] = lambda _: 0,
) -> LoadedUnit[VerifyItem, HiddenStates]:
    """unit: what serves it. max_rows: of a pass. max_context: of a session; kv_tokens: KV positions of all of them.
    budget_bytes: of layers in memory, by the bytes of all; 0: all of them. direct_io: the others bypass the page cache.

    Raises WeightsError, SelfCheckError, ValueError.
    """
    source = WeightSource.open(
        settings.weight_store,
        "target",
        settings.precision,
        settings.weights_timeout_s,
        direct=direct_io,
        tls=settings.rpc_tls,
    )
    layer_bytes = source.layout.segments["layers.0"].bytes
    model = Transformer(
        source,
        threads=settings.threads,
        max_rows=max_rows,
        max_context=max_context,
        kv_capacity_tokens=kv_tokens,
        budget_bytes=budget_bytes(layer_bytes * source.layout.config.n_layers),
    )
    identity = new_identity(unit, source, settings.precision, self_check(model), settings.threads)
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
            exit_recall=early_exit.recall if early_exit else 0.0,
        )

    def close() -> None:
        model.close()
        source.close()

    return LoadedUnit(engine, describe, close, model.clocks.totals)


def _open_early_exit(settings: UnitSettings, source: WeightSource, model: Transformer) -> EarlyExit | None:
    """The store's predictor, where it has one that drops anything. Raises WeightsError, ValueError."""
    artefact = read_early_exit(settings.weight_store, settings.weights_timeout_s, settings.rpc_tls)
    if artefact is None or artefact.config.threshold is None:
        return None
    made_for, fingerprint = artefact.config.target, source.manifest.fingerprint
    if made_for.fingerprint != fingerprint:
        raise ValueError(f"early exit: made for {made_for.name} ({made_for.fingerprint}), the target is {fingerprint}")
    return EarlyExit(artefact, model)
