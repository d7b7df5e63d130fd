"""Final norm and head: rows apart from their neighbours, and against the same sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hetspec.model.head import Head
from hetspec.model.projection import MAX_ROWS
from hetspec.model.rope import rope_tables
from tests.packs import TINY, MemoryPack

BOTH = pytest.mark.parametrize("precision", ["int8", "float32"])
VOCAB = 37  # not a multiple of a panel


def hidden(rows: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 3, (rows, TINY.hidden_size)).astype(np.float32)


@BOTH
@pytest.mark.parametrize("threads", [1, 2])
def test_a_rows_logits_do_not_depend_on_the_rows_beside_it(precision: str, threads: int) -> None:
    head = Head(MemoryPack(precision, vocab_size=VOCAB), threads=threads)
    alone = Head(MemoryPack(precision, vocab_size=VOCAB), threads=1)
    rows = hidden(2 * MAX_ROWS + 3)
    wanted = np.concatenate([alone.logits(row[None]) for row in rows])

    @given(st.integers(0, len(rows) - 1), st.integers(1, len(rows)))
    @settings(max_examples=20)
    def check(first: int, count: int) -> None:
        assert head.logits(rows[first : first + count]).tobytes() == wanted[first : first + count].tobytes()

    check()
    head.close()


@BOTH
def test_logits_are_the_norm_times_the_head(precision: str) -> None:
    pack = MemoryPack(precision, vocab_size=VOCAB)
    offset, size = pack.layout.segments["head"]
    views = pack.layout.views("head", pack.data[offset : offset + size].data)
    weight = views["head.w"].astype(np.float64)
    if precision == "int8":
        panels, pairs, lanes, _ = weight.shape
        weight = weight.transpose(0, 2, 1, 3).reshape(panels * lanes, 2 * pairs)
        weight *= views["head.scale"].transpose(0, 2, 1).reshape(panels * lanes, -1).repeat(32, axis=1)
    else:
        weight = weight.transpose(0, 2, 1).reshape(-1, TINY.hidden_size)
    x = hidden(5).astype(np.float64)
    normed = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + TINY.rms_eps) * views["final_norm"]
    wanted = normed @ weight[:VOCAB].T
    found = Head(pack, threads=1).logits(hidden(5))
    assert found.shape == (5, VOCAB)
    np.testing.assert_allclose(found, wanted, atol=1e-3 if precision == "int8" else 1e-5)


def test_logits_stay_when_others_are_asked_for() -> None:
    head = Head(MemoryPack(), threads=1)
    first = head.logits(hidden(3))
    kept = first.copy()
    head.logits(hidden(3, seed=1))
    np.testing.assert_array_equal(first, kept)


def test_rope_tables_are_cos_and_sin_of_the_float32_angle() -> None:
    cos, sin = rope_tables(TINY, 50)
    assert cos.shape == sin.shape == (50, TINY.head_dim // 2)
    for position in (0, 1, 49):
        angles = [np.float64(np.float32(position) * f) for f in TINY.inv_freq()]
        np.testing.assert_array_equal(cos[position], np.cos(angles).astype(np.float32))
        np.testing.assert_array_equal(sin[position], np.sin(angles).astype(np.float32))
