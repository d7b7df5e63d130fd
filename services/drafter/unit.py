"""The drafter, loaded: prompt lookup, and the draft model if the weight store has one."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from drafter.config import DrafterSettings
from drafter.engine import MAX_DEPTH, MAX_NODES, DrafterEngine
from drafter.measure import step_curve
from hetspec.decoding.adjust import Adjuster
from hetspec.decoding.constraint import Constraint, Past
from hetspec.decoding.grammar import Grammars
from hetspec.decoding.matcher import Matchers
from hetspec.decoding.sampling import NoiseKey, Sampling
from hetspec.drafting.candidates import Place, Proposer
from hetspec.drafting.draft_model import DraftModel
from hetspec.drafting.vocabulary_check import check_vocabularies
from hetspec.model.forward import PAGE
from hetspec.model.head import Head
from hetspec.model.projection import FEATURES, Projection
from hetspec.model.transformer import Transformer
from hetspec.model.weights import RoleMissingError, WeightSource, read_acceptance, read_manifest
from hetspec.rpc.messages import Draft, DraftItem
from hetspec.rpc.messages.draft_costs import curve_to_pb
from hetspec.rpc.unit import LoadedUnit, new_identity
from hetspec.text.vocabulary import Vocabulary
from hetspec.v1 import drafter_pb2

MAX_ROWS = 512


def load(settings: DrafterSettings) -> LoadedUnit[DraftItem, Draft]:
    """Raises WeightsError, SelfCheckError, ValueError."""
    target = read_manifest(settings.weight_store, "target", settings.weights_timeout_s, settings.rpc_tls)
    source = _open_draft(settings)
    model: DraftModel | None = None
    vocab_size = target.config.vocab_size
    digest = hashlib.sha256(_probe_choices())
    if source is not None:
        config, theirs = source.layout.config, Vocabulary(target.text.tokenizer_json)
        mine = Vocabulary(source.manifest.text.tokenizer_json)
        check_vocabularies(theirs, mine, config.vocab_size)
        barred = np.union1d(mine.missing(config.vocab_size), theirs.missing(config.vocab_size))
        vocab_size = min(vocab_size, config.vocab_size)  # padding may differ
        model = _load_model(settings, source, barred)
        digest.update(model.self_check().encode())
    matchers = Matchers(Grammars(target.text, target.config.vocab_size))
    engine = DrafterEngine(vocab_size, model, matchers)
    step_ns = None
    if model is not None:
        step_ns = curve_to_pb(step_curve(engine, model.hidden_size if model.reads_features else 0))
    identity = new_identity("drafter", source, settings.precision, digest.hexdigest(), settings.threads)

    def describe() -> drafter_pb2.DrafterDescription:
        return drafter_pb2.DrafterDescription(
            identity=identity,
            sources=engine.sources,
            max_nodes=MAX_NODES,
            max_depth=MAX_DEPTH,
            kv_held_tokens=model.transformer.pool.held_tokens if model else 0,
            sessions=len(engine.sessions),
            max_context=model.transformer.max_context if model else target.config.max_context,
            kv_capacity_tokens=model.transformer.pool.capacity_tokens if model else 0,
            kv_page_tokens=PAGE,
            reads_features=model is not None and model.reads_features,
            judges_acceptance=model is not None and model.judges_acceptance,
            step_ns=step_ns,
            holds_target=settings.holds_target,
        )

    def close() -> None:
        if model is not None:
            model.close()
        if source is not None:
            source.close()

    return LoadedUnit(engine, describe, close, model.operators if model else tuple)


def _open_draft(settings: DrafterSettings) -> WeightSource | None:
    try:
        return WeightSource.open(
            settings.weight_store, "draft", settings.precision, settings.weights_timeout_s, tls=settings.rpc_tls
        )
    except RoleMissingError:
        return None


def _load_model(settings: DrafterSettings, source: WeightSource, barred: NDArray[np.intp]) -> DraftModel:
    transformer = Transformer(
        source,
        threads=settings.threads,
        max_rows=MAX_ROWS,
        max_context=settings.max_context,
        kv_capacity_tokens=settings.kv_tokens,
    )
    features = None
    if source.layout.config.reads_features:
        size = source.layout.config.hidden_size
        features = Projection(source, FEATURES, size, threads=settings.threads)
    made = read_acceptance(settings.weight_store, settings.weights_timeout_s, settings.rpc_tls)
    acceptance = made.head() if made else None
    return DraftModel(transformer, Head(source, threads=settings.threads), barred, features, acceptance)


def _probe_choices() -> bytes:
    """What is proposed for fixed logits: the decoding rule's share in the digest."""
    row = np.sin(np.arange(1000, dtype=np.float64) * 0.37).astype(np.float32)
    samplings = (Sampling(0), Sampling(1.0), Sampling(0.8, top_p=0.9))
    places = [Place(s, NoiseKey(seed=1), Adjuster(s, Constraint(), Past()), 3, (), 8) for s in samplings]
    proposer = Proposer(len(row), None, np.array([], np.intp))
    proposals = proposer.propose(np.stack([row] * len(places)), places)
    return np.array([one.candidates for one in proposals], "<f8").tobytes()
