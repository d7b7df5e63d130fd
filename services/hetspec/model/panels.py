"""Matrix kernels: 16 outputs of a linear layer for a few rows at a time (see `lanes` for the rules they keep).

Weights pass through a core at the speed of memory. A panel's first rows meet them as they come; the rows after those
find them in the cache, and memory would rest meanwhile. So a kernel asks for lines of the next panel while it computes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from hetspec.model.lanes import (
    ADDRESS,
    COUNT,
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    VOID,
    Value,
    const,
    fma,
    intrinsic_of,
    load,
    prefetch,
    scaled,
    shuffle,
    splat,
    store,
    vec,
)
from hetspec.model.pack import GROUP

CACHE_LINE = 64  # bytes


def _madd(b: Value, w: Value, x: Value) -> Value:
    """[32] int16 times [32] int16, neighbours added: [16] int32 (what x86 calls pmaddwd)."""
    product = b.mul(b.sext(w, vec(I32, 32)), b.sext(x, vec(I32, 32)))
    return b.add(shuffle(b, product, range(0, 32, 2)), shuffle(b, product, range(1, 32, 2)))


def _panel_int8(rows: int) -> Any:
    unroll = 8 // rows  # pairs of inputs a step: enough independent loads to keep memory busy

    @intrinsic_of(VOID, ADDRESS, ADDRESS, ADDRESS, COUNT, ADDRESS, ADDRESS, COUNT, COUNT, ADDRESS, COUNT)
    def panel_int8(
        b: Value, w: Value, scale: Value, x: Value, stride: Value, x_scale: Value, out: Value, ostride: Value, n: Value,
        ahead: Value, lines: Value,
    ) -> None:  # fmt: skip
        """16 outputs of `rows` rows. w: int8 [n/2, 16, 2]; scale: float32 [n/GROUP, 16]; x: int16 [rows, stride].

        out[r, o] = x_scale[r] * sum over groups, in order, of scale[group, o] * (exact integer sum of the group).
        From `ahead` on, and where the next panel's scales lie, so many cache lines a group are fetched on the way.
        """
        facc = [cgutils.alloca_once(b, vec(F32)) for _ in range(rows)]
        iacc = [cgutils.alloca_once(b, vec(I32)) for _ in range(rows)]
        for acc in facc:
            b.store(const(0.0), acc)
        with cgutils.for_range(b, b.udiv(n, I64(GROUP))) as groups:
            for acc in iacc:
                b.store(ir.Constant(vec(I32), [0] * LANES), acc)
            with cgutils.for_range(b, lines) as line:
                soon = b.add(b.mul(groups.index, lines), line.index)
                prefetch(b, b.add(ahead, scaled(b, soon, CACHE_LINE)))
            next_scales = b.add(groups.index, b.udiv(n, I64(GROUP)))
            prefetch(b, b.add(scale, scaled(b, next_scales, 4 * LANES)))
            w_group = b.add(w, scaled(b, groups.index, GROUP * LANES))
            x_group = b.add(x, scaled(b, groups.index, GROUP * 2))
            with cgutils.for_range(b, I64(GROUP // 2 // unroll)) as steps:
                for u in range(unroll):
                    pair = b.add(b.mul(steps.index, I64(unroll)), I64(u))
                    wide = b.sext(load(b, b.add(w_group, scaled(b, pair, 32)), vec(I8, 32)), vec(I16, 32))
                    for r, acc in enumerate(iacc):
                        address = b.add(b.add(x_group, scaled(b, pair, 4)), scaled(b, stride, 2 * r))
                        both = b.bitcast(splat(b, load(b, address, I32)), vec(I16, 32))
                        b.store(b.add(b.load(acc), _madd(b, wide, both)), acc)
            scales = load(b, b.add(scale, scaled(b, groups.index, 4 * LANES)), vec(F32))
            for whole, acc in zip(iacc, facc, strict=True):
                b.store(fma(b, b.sitofp(b.load(whole), vec(F32)), scales, b.load(acc)), acc)
        for r, acc in enumerate(facc):
            row_scale = splat(b, load(b, b.add(x_scale, I64(4 * r)), F32))
            store(b, b.fmul(b.load(acc), row_scale), b.add(out, scaled(b, ostride, 4 * r)))

    return panel_int8


panel_int8_1, panel_int8_2, panel_int8_4 = _panel_int8(1), _panel_int8(2), _panel_int8(4)


def _panel_float32(rows: int) -> Any:
    @intrinsic_of(VOID, ADDRESS, ADDRESS, COUNT, ADDRESS, COUNT, COUNT)
    def panel_float32(b: Value, w: Value, x: Value, stride: Value, out: Value, ostride: Value, n: Value) -> None:
        """16 outputs of `rows` rows. w: float32 [n, 16]; x: float32 [rows, stride]. Inputs are added in order."""
        accs = [cgutils.alloca_once(b, vec(F32)) for _ in range(rows)]
        for acc in accs:
            b.store(const(0.0), acc)
        with cgutils.for_range(b, n) as loop:
            column = load(b, b.add(w, scaled(b, loop.index, 4 * LANES)), vec(F32))
            for r, acc in enumerate(accs):
                address = b.add(b.add(x, scaled(b, loop.index, 4)), scaled(b, stride, 4 * r))
                b.store(fma(b, column, splat(b, load(b, address, F32)), b.load(acc)), acc)
        for r, acc in enumerate(accs):
            store(b, b.load(acc), b.add(out, scaled(b, ostride, 4 * r)))

    return panel_float32


panel_float32_1, panel_float32_2, panel_float32_4 = _panel_float32(1), _panel_float32(2), _panel_float32(4)
