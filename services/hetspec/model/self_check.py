"""What a transformer proves of itself at start: a row's bits do not depend on how it came to be computed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetspec.decoding.tree import TokenTree
from hetspec.model import forward
from hetspec.model.kv import KVCache
from hetspec.model.lanes import LANES, QMAX
from hetspec.model.pack import GROUP
from hetspec.model.projection import Projection
from hetspec.model.transformer import Rows, Span, Transformer

_TOKENS = 40  # more than a KV page
NO_TREE = TokenTree()
_HEIGHTS = (1, 2, 3, 4, 5, 7, 8, 16)


class SelfCheckError(Exception):
    """The kernels do not keep what exactness rests on; one line."""


def self_check(model: Transformer, features: Projection | None = None) -> str:
    """The digest of probe outputs: equal where two units give equal bits. Raises SelfCheckError.

    features: of a draft that reads features.
    """
    check_integer_sums()
    probe = _Probe(model, features)
    whole = probe.prefill(len(probe.ids))
    if not np.isfinite(whole).all():
        raise SelfCheckError("self-check: hidden rows of probe tokens are not finite")
    for chunk in (1, 2, 3, 7):
        _expect(whole, probe.prefill(chunk), f"prefilled {chunk} at a time")
    _check_tree(probe, whole)
    digest = hashlib.sha256(whole.tobytes())
    digest.update(model.plan.cos.tobytes())
    digest.update(model.plan.sin.tobytes())
    return digest.hexdigest()


def probe_ids(vocab_size: int, count: int) -> list[int]:
    return [(7 + i * 2654435761) % vocab_size for i in range(count)]


def check_integer_sums() -> None:
    """int8 panels at their limits against sums in 64 bits, at every height. Raises SelfCheckError."""
    rng = np.random.default_rng(0)
    weights = rng.choice(np.array([-127, 127, 126, 0], np.int8), (LANES, GROUP))
    weights[0], weights[1] = 127, -127
    rows = rng.choice(np.array([-QMAX, QMAX, 1], np.int16), (max(_HEIGHTS), GROUP))
    rows[0], rows[1] = QMAX, -QMAX
    exact = (rows.astype(np.int64) @ weights.T.astype(np.int64)).astype(np.float32)
    for height in _HEIGHTS:
        if not np.array_equal(_int8_panel(weights, rows[:height]), exact[:height]):
            raise SelfCheckError(f"self-check: int8 sums of {height} rows at the limits are not exact")


def _int8_panel(weights: NDArray[np.int8], rows: NDArray[np.int16]) -> NDArray[np.float32]:
    packed = np.ascontiguousarray(weights.reshape(LANES, GROUP // 2, 2).transpose(1, 0, 2))
    ones, out = np.ones(max(LANES, len(rows)), np.float32), np.zeros((len(rows), LANES), np.float32)
    entries = np.zeros(forward.PLAN_SIZE, np.int64)
    entries[[forward.INT8, forward.THREADS, forward.INPUT_STRIDE]] = 1, 1, GROUP
    entries[[forward.INPUT, forward.INPUT_SCALE]] = rows.ctypes.data, ones.ctypes.data
    forward.linear(entries, packed.ctypes.data, ones.ctypes.data, 0, 0, GROUP, out.ctypes.data, 1, len(rows), 0)
    return out


class _Probe:
    """Tokens and, for a draft that reads features, a feature of each."""

    def __init__(self, model: Transformer, features: Projection | None) -> None:
        self.model = model
        self.ids = probe_ids(model.config.vocab_size, min(_TOKENS, model.max_context - 8, model.max_rows - 8))
        self._features = features
        angles = np.arange(len(self.ids) * model.config.hidden_size, dtype=np.int64) * 40503 % 1021
        self._rows = (angles - 510).reshape(len(self.ids), -1).astype(np.float32) / np.float32(64)

    def span(self, cache: KVCache, places: Sequence[int], below: Sequence[int] = (), tree: TokenTree = NO_TREE) -> Span:
        """These of the tokens, and a tree below them whose nodes have the features of the tokens `below`."""
        added = None if self._features is None else self._features.project(self._rows[[*places, *below]])
        return Span(cache, [self.ids[place] for place in places], tree, added=added)

    def prefill(self, chunk: int) -> Rows:
        cache = self.model.new_cache()
        places = range(len(self.ids))
        rows = [self.model.run([self.span(cache, places[i : i + chunk])])[0] for i in places[::chunk]]
        cache.release()
        return np.concatenate(rows)


def _check_tree(probe: _Probe, whole: Rows) -> None:
    """The last tokens again, as a path of a tree among siblings and a stranger's rows; then moved and built upon."""
    model, ids, places = probe.model, probe.ids, range(len(probe.ids))
    split = len(ids) - 5
    cache, stranger = model.new_cache(), model.new_cache()
    model.run([probe.span(cache, places[: split - 1])])
    a, b, c = ids[split : split + 3]
    other = min({0, 1, 2} - {a, b})
    tree = TokenTree((other, a, other, b, b, c), (-1, -1, 0, 0, 1, 4))
    below = [split, split, split + 1, split + 1, split + 1, split + 2]
    rows, _ = model.run([probe.span(stranger, places[:3]), probe.span(cache, [split - 1], below, tree)])
    path = [1, 4, 5]
    _expect(whole[split - 1 : split + 3], rows[3:][[0, *(1 + node for node in path)]], "in a tree")
    first_slot = cache.length
    cache.keep([first_slot + node for node in path])
    rows, _ = model.run([probe.span(cache, places[split + 3 :])])
    _expect(whole[split + 3 :], rows, "after a tree was compacted")
    cache.release()
    stranger.release()


def _expect(expected: Rows, found: Rows, how: str) -> None:
    if expected.tobytes() != found.tobytes():
        raise SelfCheckError(f"self-check: rows {how} differ from those of one pass")
