"""What units find out of their own costs at start: the least a point, more rows never cheaper, nothing left behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from drafter.engine import DrafterEngine
from drafter.measure import STEP_ROWS, step_curve
from hetspec.drafting.draft_model import DraftModel
from hetspec.model.forward import PAGE
from hetspec.model.head import Head
from hetspec.model.measure import CONTEXT_TOKENS, VERIFY_ROWS, measured_curve, pass_curve
from hetspec.model.transformer import Rows, RowTable, Span, Transformer
from hetspec.rpc.messages import Draft, DraftItem, PassResult
from hetspec.rpc.work import ShouldStop
from tests.packs import TINY, MemoryPack

COMPILES = 4_000_000_000  # the first act of a process


def test_a_point_is_the_least_and_no_less_than_those_of_fewer_rows() -> None:
    told = {1: iter((COMPILES, 9, 5, 6, 7, 8)), 2: iter((3, 3, 2, 90, 3)), 4: iter((7, 8, 70, 6, 9))}
    assert measured_curve((1, 2, 4), lambda rows: next(told[rows])).points == ((1, 5), (2, 5), (4, 6))


def test_a_slow_model_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetspec.model.measure._ENOUGH_NS", 1)
    told = iter((COMPILES, 3, 4))
    assert measured_curve((1, 2), lambda rows: next(told)).points == ((1, 3), (2, 4))
    assert next(told, None) is None


@pytest.mark.parametrize(("max_context", "kv_pages", "max_rows"), [(160, 16, 512), (16, 4, 64), (160, 4, 64)])
def test_passes_are_of_the_rows_asked_for_as_far_as_there_is_room_and_hold_nothing(
    max_context: int, kv_pages: int, max_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Transformer(
        MemoryPack(), threads=1, max_rows=max_rows, max_context=max_context, kv_capacity_tokens=kv_pages * PAGE
    )
    seen: set[tuple[int, int]] = set()
    run = Transformer.run

    def watched(self: Transformer, spans: Sequence[Span]) -> tuple[Rows, RowTable]:
        rows, table = run(self, spans)
        seen.add((len(rows), table.kv_len[0]))
        assert np.isfinite(rows).all()
        return rows, table

    monkeypatch.setattr(Transformer, "run", watched)
    curve = pass_curve(model)
    rows = [min(count, max_rows) for count in VERIFY_ROWS]
    assert [count for count, _ in curve.points] == rows
    kv_len = min(CONTEXT_TOKENS, max_context - 9, kv_pages * PAGE - rows[-1]) + 1
    assert seen == {(count, kv_len) for count in rows}
    assert model.pool.held_tokens == 0


def test_a_step_is_measured_with_the_rows_it_is_told_of() -> None:
    pack = MemoryPack()
    model = Transformer(pack, threads=1, max_rows=64, max_context=100, kv_capacity_tokens=8 * PAGE)
    engine = DrafterEngine(TINY.vocab_size, DraftModel(model, Head(pack, threads=1), np.array([], np.intp)))
    steps: set[tuple[int, ...]] = set()
    run = engine.run

    def watched(items: Sequence[DraftItem], should_stop: ShouldStop) -> PassResult[Draft]:
        result = run(items, should_stop)
        steps.add(result.trace.draft_step_rows)
        return result

    engine.run = watched  # type: ignore[method-assign]
    curve = step_curve(engine, 0)
    assert [rows for rows, _ in curve.points] == list(STEP_ROWS)
    assert steps == {(2,), *((2, rows, rows) for rows in STEP_ROWS)}
    assert len(engine.sessions) == model.pool.held_tokens == 0
