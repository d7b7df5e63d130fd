"""What the early-exit predictor takes of a node, against one of the target's layers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from hetspec.decoding.tree import TokenTree
from hetspec.model.config import ModelConfig
from hetspec.model.early_exit import DRAFT_FEATURES, MATCHES, DraftedRows, Predictor
from hetspec.model.early_exit_artefact import EarlyExitConfig
from hetspec.model.transformer import Span, Transformer
from hetspec.training.early_exit.report import Cost

CONTEXT_TOKENS = 128
_REPEATS = 11


def measure_cost(config: EarlyExitConfig, predictor: Predictor, target: Transformer, nodes: int) -> Cost:
    """Medians over a tree of chains with `nodes` nodes, behind CONTEXT_TOKENS others."""
    width = min(8, nodes)
    tree = TokenTree(tuple(range(nodes)), tuple(node - width if node >= width else -1 for node in range(nodes)))
    cache = target.new_cache()
    target.run([Span(cache, [0] * CONTEXT_TOKENS)])

    def verify() -> None:
        target.run([Span(cache, [0], tree)])
        cache.length -= 1

    drafted = DraftedRows.of(0, tree, [0.5] * nodes, [0] * nodes, [0.0] * nodes)
    rows = np.ones((1 + nodes, config.hidden_size), np.float32)
    pass_ns = _median_ns(verify)
    predictor_ns = _median_ns(lambda: predictor.log_chances(drafted, rows, rows))
    cache.release()
    layer_ns = pass_ns / target.config.n_layers / (1 + nodes)
    return Cost(predictor_macs(config), layer_macs(target.config), predictor_ns / nodes, layer_ns)


def predictor_macs(config: EarlyExitConfig) -> int:
    """Of a node that has children: of its row as a parent's and as its own, of its token, and what is made of them."""
    c = config
    rows = c.hidden_size * (2 * c.rank + c.bends + 2 * c.answers + 2 * c.row_features)
    features = DRAFT_FEATURES + MATCHES + 2 * c.row_features
    return rows + c.bends * c.rank + c.rank + c.answers + c.units * (features + 1)


def layer_macs(config: ModelConfig) -> int:
    """Of a row in the matrices; attention comes on top, with the context."""
    attention = config.hidden_size * (2 * config.q_size + 2 * config.kv_size)
    return attention + 3 * config.hidden_size * config.ffn_size


def _median_ns(act: Callable[[], object]) -> float:
    times: list[int] = []
    for _ in range(_REPEATS):
        start_ns = time.perf_counter_ns()
        act()
        times.append(time.perf_counter_ns() - start_ns)
    return statistics.median(times)
