"""The self-check passes what is exact, finds what is not, and tells models apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import POINTER, c_float, cast
from typing import Any

import numpy as np
import pytest

from hetspec.model import forward
from hetspec.model.kv import KVCache
from hetspec.model.projection import FEATURES, Projection
from hetspec.model.self_check import SelfCheckError, check_integer_sums, self_check
from hetspec.model.transformer import Rows, RowTable, Span, Transformer
from tests.packs import TINY, MemoryPack


class Flawed(Transformer):
    """Rows in which `flaw` had a hand."""

    flaw: Callable[[Rows, Sequence[Span]], None]

    def run(self, spans: Sequence[Span], should_stop: Callable[[], bool] | None = None) -> tuple[Rows, RowTable]:
        rows, table = super().run(spans, should_stop)
        self.flaw(rows, spans)
        return rows, table


def model(kind: type[Transformer] = Transformer, *, threads: int = 1, seed: int = 0, **shape: Any) -> Any:
    options = {"max_rows": 64, "max_context": 128, "kv_capacity_tokens": 128} | shape
    return kind(MemoryPack(seed=seed), threads=threads, **options)


class FlawedProjection(Projection):
    """Whose rows depend on how many are projected together."""

    def project(self, rows: Rows) -> Rows:
        mixed = super().project(rows)
        mixed[-1, 0] += len(rows) % 3
        return mixed


def test_a_draft_that_reads_features_is_checked_with_them() -> None:
    packs = [MemoryPack(seed=seed, reads_features=True) for seed in (0, 1)]

    def digest(features: Projection | None, threads: int = 1) -> str:
        checked = Transformer(packs[0], threads=threads, max_rows=64, max_context=128, kv_capacity_tokens=128)
        return self_check(checked, features)

    mine, other = (Projection(pack, FEATURES, TINY.hidden_size, threads=1) for pack in packs)
    on_two = Projection(packs[0], FEATURES, TINY.hidden_size, threads=2)
    assert digest(mine) == digest(on_two, threads=2)
    assert len({digest(mine), digest(other), digest(None)}) == 3
    with pytest.raises(SelfCheckError, match="prefilled 1 at a time"):
        digest(FlawedProjection(packs[0], FEATURES, TINY.hidden_size, threads=1))


def test_the_digest_is_the_weights_and_not_the_threads() -> None:
    digest = self_check(model())
    assert digest == self_check(model(threads=2)) == self_check(model(threads=3))
    assert digest != self_check(model(seed=1))
    assert len(digest) == 64


def test_nothing_is_held_afterwards() -> None:
    checked = model()
    self_check(checked)
    assert checked.pool.held_tokens == 0


@pytest.mark.parametrize("shape", [{"max_context": 16}, {"max_rows": 16}, {"kv_capacity_tokens": 128}])
def test_the_smallest_settings_leave_room_for_it(shape: dict[str, int]) -> None:
    self_check(model(**shape))


def bump(rows: Rows) -> None:
    rows[-1, 0] = np.nextafter(rows[-1, 0], np.float32(np.inf))


FLAWS: dict[str, Callable[[Rows, Sequence[Span]], None]] = {
    "not finite": lambda rows, spans: rows.fill(np.nan),
    "prefilled 1 at a time": lambda rows, spans: bump(rows) if len(rows) == 1 else None,
    "prefilled 7 at a time": lambda rows, spans: bump(rows) if len(rows) == 7 else None,
    "in a tree": lambda rows, spans: bump(rows) if len(spans) == 2 else None,
}


@pytest.mark.parametrize("name", list(FLAWS))
def test_a_flaw_of_one_bit_is_found_and_named(name: str) -> None:
    flawed = model(Flawed)
    flawed.flaw = FLAWS[name]
    with pytest.raises(SelfCheckError, match=f"^self-check: .*{name}"):
        self_check(flawed)


def test_a_wrong_compaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_to_move(self: KVCache, slots: Sequence[int]) -> None:
        self.length += len(slots)

    monkeypatch.setattr(KVCache, "keep", forgets_to_move)
    with pytest.raises(SelfCheckError, match="after a tree was compacted"):
        self_check(model())


def test_integer_sums_at_the_limits_are_exact_and_a_wrong_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check_integer_sums()
    real = forward.linear

    def saturating(*arguments: Any) -> None:
        real(*arguments)
        out = np.ctypeslib.as_array(cast(arguments[6], POINTER(c_float)), (arguments[8] * 16,))
        np.clip(out, -(2.0**26), 2.0**26, out=out)

    monkeypatch.setattr(forward, "linear", saturating)
    with pytest.raises(SelfCheckError, match="int8 sums of 1 rows at the limits are not exact"):
        check_integer_sums()
