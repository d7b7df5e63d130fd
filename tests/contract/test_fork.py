"""A verifier's fork holds the bits that it would have computed itself, at every length, and costs a page at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from hetspec.decoding.history import History
from hetspec.decoding.tree import TokenTree
from hetspec.model.kv import PAGE, KVCache
from hetspec.model.transformer import Transformer
from hetspec.rpc.messages import HiddenRows, HiddenStates, SessionUpdate, UnitError, VerifyItem
from hetspec.verification.engine import VerifierEngine
from tests.packs import MemoryPack

IDS = np.random.default_rng(4).integers(0, 40, 3 * PAGE + 2).tolist()
TREE = TokenTree((7, 8, 9), (-1, -1, 1))


def engine_of(precision: str) -> VerifierEngine:
    transformer = Transformer(
        MemoryPack(precision), threads=1, max_rows=128, max_context=160, kv_capacity_tokens=20 * PAGE
    )
    return VerifierEngine(transformer, lambda: None)


def verify(
    engine: VerifierEngine, session: str, known: Sequence[int], append: Sequence[int], fork_of: str = ""
) -> HiddenStates:
    update = SessionUpdate(session, 1, len(known), History(known).hash, (), tuple(append), fork_of)
    (answer,) = engine.run([VerifyItem(update, TREE, HiddenRows.LAST)], lambda: False).items
    assert not isinstance(answer, UnitError)
    return answer


def committed(engine: VerifierEngine, session: str) -> list[NDArray[np.float32]]:
    """Keys and values of each position."""
    cache: KVCache = engine.sessions._sessions[session].state.cache
    return [cache._page_of(slot)[..., slot % PAGE, :].copy() for slot in range(cache.length)]


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_a_fork_has_the_bits_of_a_fresh_session_at_every_length(precision: str) -> None:
    engine = engine_of(precision)
    verify(engine, "parent", [], IDS)
    parents = committed(engine, "parent")
    pool = engine.transformer.pool
    for length in range(1, len(IDS)):
        own = [IDS[length] ^ 1, 5]  # goes on otherwise than its parent
        fresh = verify(engine, "fresh", [], [*IDS[:length], *own])
        held = pool.held_tokens
        fork = verify(engine, "fork", IDS[:length], own, "parent")
        assert fork == fresh, f"forked at {length}"
        pairs = zip(committed(engine, "fork"), committed(engine, "fresh"), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs)
        slots = length + len(own) + len(TREE)
        assert pool.held_tokens - held == (-(-slots // PAGE) - length // PAGE) * PAGE  # full pages are shared
        engine.release(["fork", "fresh"])
    assert all(np.array_equal(*pair) for pair in zip(committed(engine, "parent"), parents, strict=True))
    engine.release(["parent"])
    assert pool.held_tokens == 0


@pytest.mark.parametrize("length", [PAGE - 1, PAGE, PAGE + 1, 3 * PAGE])
def test_a_fork_outlives_its_parent_and_can_be_forked(length: int) -> None:
    engine = engine_of("int8")
    verify(engine, "parent", [], IDS)
    verify(engine, "child", IDS[:length], [1], "parent")
    engine.release(["parent"])
    grandchild = verify(engine, "grandchild", [*IDS[:length], 1], [2], "child")
    engine.release(["child"])
    on = verify(engine, "grandchild", [*IDS[:length], 1, 2], [3])
    assert grandchild == verify(engine, "fresh", [], [*IDS[:length], 1, 2])
    assert on == verify(engine, "fresh", [*IDS[:length], 1, 2], [3])
    engine.release(["grandchild", "fresh"])
    assert engine.transformer.pool.held_tokens == 0
