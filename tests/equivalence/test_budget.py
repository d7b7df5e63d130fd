"""Under a DRAM budget: no more than it and two layers in memory, every other layer read once a pass, cut or not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hetspec.decoding.history import History
from hetspec.model.checkpoint import open_checkpoint
from hetspec.model.cut import NEVER, Cut
from hetspec.model.pack import PackFile, PackLayout, open_pack
from hetspec.model.pack_writer import write_pack
from hetspec.model.transformer import Span, Transformer
from hetspec.rpc.messages import HiddenRows, PassResult, SessionUpdate, VerifyItem
from hetspec.rpc.unit import LoadedUnit
from hetspec.rpc.work import Stopped
from tests.system import Ask, Setup, System, serving, verifier_settings, weight_store
from verifier import unit as verifier_unit

LAYERS = 4
IDS = tuple(range(10, 50))


def layer_bytes_of(checkpoint: Path, precision: str) -> int:
    return PackLayout.of(open_checkpoint(checkpoint).config, precision).segments["layers.0"].bytes


@asynccontextmanager
async def verifier(setup: Setup) -> AsyncIterator[LoadedUnit[Any, Any]]:
    async with serving(weight_store(setup)) as store:
        unit = await asyncio.to_thread(verifier_unit.load, verifier_settings(setup, store))
        try:
            yield unit
        finally:
            unit.close()


def run(unit: LoadedUnit[Any, Any], session: str, should_stop: Callable[[], bool] = lambda: False) -> PassResult[Any]:
    """A new session's whole prompt in one pass."""
    update = SessionUpdate(session, 1, 0, History().hash, append=IDS)
    return unit.engine.run([VerifyItem(update, hidden=HiddenRows.ALL)], should_stop)


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("resident", [0, 1, 2, 3, 4])
async def test_a_pass_reads_each_layer_that_is_not_resident_once(
    resident: int, precision: str, tiny: Path, cache_dir: Path
) -> None:
    layer_bytes = layer_bytes_of(tiny, precision)
    budget_bytes = max(1, resident * layer_bytes + layer_bytes // 2)
    bare = Setup(tiny, cache_dir, precision=precision)
    async with verifier(bare) as unit:
        expected = run(unit, "a").items[0]
    async with verifier(Setup(tiny, cache_dir, precision=precision, dram_budget=str(budget_bytes))) as unit:
        for session in ("a", "b"):
            before = unit.describe()
            result = run(unit, session)
            after = unit.describe()
            assert result.items[0] == expected
            assert result.trace.weight_reads == LAYERS - resident
            assert result.trace.weight_bytes_read == (LAYERS - resident) * layer_bytes
            assert after.weight_bytes_read - before.weight_bytes_read == result.trace.weight_bytes_read
        assert after.layers_resident == resident
        assert after.weights_resident_bytes <= after.weights_resident_peak_bytes <= budget_bytes + 2 * layer_bytes


class CountingReader:
    """A pack that remembers where it was read."""

    def __init__(self, pack: PackFile) -> None:
        self._pack = pack
        self.layout = pack.layout
        self.map = pack.map
        self.offsets: list[int] = []

    def read_into(self, offset: int, buffer: memoryview, cut: Cut = NEVER) -> None:
        self.offsets.append(offset)
        self._pack.read_into(offset, buffer, cut)


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_reads_of_a_pass_are_the_other_layers_in_order(precision: str, tiny: Path, cache_dir: Path) -> None:
    reader = CountingReader(open_pack(write_pack(open_checkpoint(tiny), precision, cache_dir)))
    segments = reader.layout.segments
    model = Transformer(
        reader, threads=1, max_rows=64, max_context=64, kv_capacity_tokens=64, budget_bytes=segments["layers.0"].bytes
    )
    cache = model.new_cache()
    for _ in range(3):
        reader.offsets.clear()
        model.run([Span(cache, [5, 6, 7])])
        assert reader.offsets == [segments[f"layers.{layer}"].offset for layer in range(1, LAYERS)]
    model.close()


async def test_a_pass_that_is_cut_reads_no_layer_twice_and_leaves_the_next_one_right(
    tiny: Path, cache_dir: Path
) -> None:
    layer_bytes = layer_bytes_of(tiny, "int8")
    async with verifier(Setup(tiny, cache_dir, dram_budget=str(layer_bytes))) as unit:
        expected = run(unit, "whole").items[0]
        for looks in range(LAYERS):
            before = unit.describe().weight_bytes_read
            left = iter([False] * looks)
            with pytest.raises(Stopped):
                run(unit, f"cut {looks}", lambda left=left: next(left, True))
            read = unit.describe().weight_bytes_read - before
            assert read <= (LAYERS - 1) * layer_bytes
            result = run(unit, f"next {looks}")
            assert result.items[0] == expected
            assert result.trace.weight_reads == LAYERS - 1
            assert result.trace.weight_bytes_read == (LAYERS - 1) * layer_bytes


async def test_a_quarter_in_memory_is_a_quarter_of_the_layers(tiny: Path, cache_dir: Path) -> None:
    layer_bytes = layer_bytes_of(tiny, "int8")
    async with System(Setup(tiny, cache_dir, dram_budget="25%")) as system:
        await system.generate(Ask(IDS, "tree"))
        told = await system.describe("verifier")
    assert (told.dram_budget_bytes, told.layers_resident) == (LAYERS * layer_bytes // 4, LAYERS // 4)
    assert told.weights_resident_peak_bytes <= told.dram_budget_bytes + 2 * layer_bytes
