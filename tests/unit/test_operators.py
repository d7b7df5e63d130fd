"""The clocks of a pass's operators: they count what ran, add up to its time, and change no bit of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
from numba import njit

from hetspec.decoding.tree import TokenTree
from hetspec.model import forward
from hetspec.model import operators as op
from hetspec.model.head import Head
from hetspec.model.projection import FEATURES, Projection
from hetspec.model.transformer import PassStopped, Span, Transformer
from hetspec.telemetry.profile import OperatorTotal
from tests.packs import MemoryPack

# No size needs padding, so that multiply-adds are those of the matrices themselves.
SHAPE = {"hidden_size": 64, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "ffn_size": 128, "vocab_size": 48}
LAYERS, HIDDEN, Q, KV, FFN, VOCAB = 5, 64, 64, 32, 128, 48
IN_LAYERS = [op.OPERATORS[i] for i in range(op.ATTENTION_NORM, op.FINAL_NORM)]
TREE = TokenTree((1, 2, 3), (-1, 0, 0))


def pack_of(precision: str) -> MemoryPack:
    return MemoryPack(precision, n_layers=LAYERS, **SHAPE)


def transformer(precision: str = "int8", threads: int = 1, layers: int = LAYERS, **shape: Any) -> Transformer:
    pack = MemoryPack(precision, n_layers=layers, **(SHAPE | shape))
    return Transformer(pack, threads=threads, max_rows=64, max_context=160, kv_capacity_tokens=320)


def by_name(totals: Sequence[OperatorTotal]) -> dict[str, OperatorTotal]:
    return {total.name: total for total in totals}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_every_operator_runs_once_a_layer_and_pass(precision: str, threads: int) -> None:
    model = transformer(precision, threads)
    cache = model.new_cache()
    model.run([Span(cache, range(7))])
    model.run([Span(cache, [3], TREE)])
    model.close()
    found = by_name(model.clocks.totals())
    expected = [name for name in IN_LAYERS if precision == "int8" or name != "quantise"]
    assert [*found] == expected + (["wait"] if threads == 2 else [])
    assert {found[name].calls for name in expected} == {2 * LAYERS}
    assert {found[name].rows for name in expected} == {(7 + 4) * LAYERS}
    assert {total.group for total in found.values()} == {"layers"}
    if threads == 2:
        assert found["wait"].calls == len(expected) * 2 * LAYERS


def test_a_head_runs_its_two_operators_once_a_call() -> None:
    pack = pack_of("int8")
    head = Head(pack, threads=1)
    head.logits(np.ones((20, HIDDEN), np.float32))  # two native calls: 16 rows at most in one
    norm, projection = head.clocks.totals()
    assert (norm.name, norm.calls, norm.rows) == ("final norm", 2, 20)
    assert (projection.name, projection.calls, projection.rows) == ("head", 2, 20)
    assert projection.macs == 20 * HIDDEN * VOCAB
    fields = pack.layout.fields["head"]
    assert projection.read_bytes == 2 * (fields["head.w"].bytes + fields["head.scale"].bytes)


def test_what_reads_features_has_clocks_of_its_own() -> None:
    pack = MemoryPack(n_layers=1, reads_features=True, **SHAPE)
    features = Projection(pack, FEATURES, HIDDEN, threads=1)
    features.project(np.ones((3, HIDDEN), np.float32))
    norm, mix = features.clocks.totals()
    assert (norm.group, norm.name, norm.rows, norm.read_bytes) == ("features", "feature norm", 3, 4 * HIDDEN)
    assert (mix.group, mix.name, mix.rows, mix.macs) == ("features", "feature mix", 3, 3 * HIDDEN * HIDDEN)


def test_work_is_that_of_the_matrices() -> None:
    model = transformer("float32")
    cache = model.new_cache()
    model.run([Span(cache, range(10))])
    model.run([Span(cache, [3], TREE)])
    found = by_name(model.clocks.totals())
    rows = (10 + 4) * LAYERS
    assert found["qkv"].macs == rows * HIDDEN * (Q + 2 * KV)
    assert found["o"].macs == rows * Q * HIDDEN
    assert found["gate, up"].macs == rows * HIDDEN * 2 * FFN
    assert found["down"].macs == rows * FFN * HIDDEN
    positions = sum(range(1, 11)) + 11 + 12 + 13 + 13  # the tree: a node below the last token, two below that
    assert found["attention"].macs == 2 * Q * positions * LAYERS
    assert found["attention"].read_bytes == 2 * KV * 4 * positions * LAYERS
    assert found["down"].read_bytes == 2 * LAYERS * FFN * HIDDEN * 4
    assert found["residual"].macs == found["residual"].read_bytes == 0


def test_a_pass_that_is_cut_counts_the_layers_it_ran() -> None:
    model = transformer()
    cache = model.new_cache()
    answers = iter([False, True])
    with pytest.raises(PassStopped) as stop:
        model.run([Span(cache, [7] * 60)], lambda: next(answers))
    found = by_name(model.clocks.totals())
    assert 0 < stop.value.layers < LAYERS
    assert found["down"].calls == stop.value.layers
    assert found["attention"].macs == 2 * Q * sum(range(1, 61)) * stop.value.layers
    cache.release()


@pytest.mark.parametrize("threads", [1, 2])
def test_operators_add_up_to_the_time_of_the_native_calls(threads: int) -> None:
    """Never to more. To less by the way into the call and out of it: under a twentieth of this one, where nothing else
    has the processor in between; of ten passes the best shows it."""
    model = transformer(threads=threads, layers=16, hidden_size=256, ffn_size=512)
    spent: list[int] = []
    model.team.run = timed(model.team.run, spent)  # type: ignore[method-assign]
    cache = model.new_cache()
    shares = []
    for _ in range(10):
        spent.clear()
        before = sum(total.ns for total in model.clocks.totals())
        model.run([Span(cache, range(32))])
        cache.length = 0
        shares.append((sum(total.ns for total in model.clocks.totals()) - before) / sum(spent))
    cache.release()
    model.close()
    assert max(shares) <= 1
    assert max(shares) > 0.95


def timed(run: Callable[[Any], None], spent: list[int]) -> Callable[[Any], None]:
    def run_timed(job: Any) -> None:
        def inside(thread: int) -> None:
            start_ns = time.monotonic_ns()
            job(thread)
            if thread == 0:
                spent.append(time.monotonic_ns() - start_ns)

        run(inside)

    return run_timed


@njit
def _only_wait(plan: Any, clocks: Any, thread: int, operator: int) -> None:
    forward.barrier(plan)


@njit
def _nothing(clocks: Any, thread: int) -> None:
    pass


def without_clocks() -> Any:
    """The layers' native code, compiled from the same source with clocks that do not exist."""
    names = ModuleType("operators_without_clocks")
    names.__dict__.update(op.__dict__ | {"start_clock": _nothing})
    scope = forward.__dict__ | {"end_phase": _only_wait, "op": names}
    scope["layer_pass"] = njit(FunctionType(forward.layer_pass.py_func.__code__, scope))
    return njit(FunctionType(forward.run_layers.py_func.__code__, scope))


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_clocks_change_no_bit(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows() -> tuple[bytes, int]:
        model = transformer(precision)
        cache = model.new_cache()
        told = [model.run([Span(cache, range(9))])[0], model.run([Span(cache, [3], TREE)])[0]]
        cache.release()
        return b"".join(each.tobytes() for each in told), int(model.clocks.table.any())

    clocked, counted = rows()
    monkeypatch.setattr(forward, "run_layers", without_clocks())
    bare, none_counted = rows()
    assert (counted, none_counted) == (1, 0)
    assert clocked == bare
