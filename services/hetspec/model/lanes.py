"""Vector kernels whose arithmetic is spelled out, one operation after another.

Every float operation here is an explicit add, multiply or fused multiply-add on a stated lane in a stated order; the
compiler is given no licence to reorder or contract. So the bits of a result are a function of its inputs alone: not of
how many other rows are computed beside it, of the thread that computes it, or of the width of the machine's registers.
Integer sums are exact in any order.

The kernels are written in LLVM's vector types (16 lanes, whatever the machine has) and take addresses; numba inlines
them into the loops of `forward`. `n` counts elements and is a multiple of LANES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hetspec.model.pack import GROUP, PANEL

LANES = PANEL

QMAX = 32767  # activations are 16-bit integers: a group's sum is below 32 * 127 * 32767 < 2**31

I8, I16, I32, I64, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
Value = Any  # an llvmlite value; llvmlite carries no types


def _vector(element: Value, width: int = LANES) -> Value:
    return ir.VectorType(element, width)


def _at(b: Value, address: Value, element: Value) -> Value:
    return b.inttoptr(address, element.as_pointer())


def _load(b: Value, address: Value, element: Value) -> Value:
    return b.load(_at(b, address, element), align=4 if element != _vector(I8, 32) else 1)


def _store(b: Value, value: Value, address: Value) -> None:
    b.store(value, _at(b, address, value.type), align=2 if value.type == _vector(I16) else 4)


def _shuffle(b: Value, vector: Value, lanes: Sequence[int]) -> Value:
    mask = ir.Constant(_vector(I32, len(lanes)), list(lanes))
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _splat(b: Value, scalar: Value, width: int = LANES) -> Value:
    one = b.insert_element(ir.Constant(_vector(scalar.type, width), ir.Undefined), scalar, I32(0))
    return _shuffle(b, one, [0] * width)


def _const(value: float, width: int = LANES) -> Value:
    return ir.Constant(_vector(F32, width), [value] * width)


def _call(b: Value, name: str, *args: Value) -> Value:
    """An LLVM intrinsic that maps vectors of one type to that type."""
    kind = args[0].type
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(kind, [kind] * len(args)), name)
    return b.call(function, args)


def _fma(b: Value, x: Value, y: Value, z: Value) -> Value:
    return _call(b, f"llvm.fma.v{x.type.count}f32", x, y, z)


def _halves(b: Value, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """Folds the lanes of a vector: upper half onto lower half until one is left."""
    width = vector.type.count
    while width > 1:
        width //= 2
        low, high = _shuffle(b, vector, range(width)), _shuffle(b, vector, range(width, 2 * width))
        vector = combine(low, high)
    return b.extract_element(vector, I32(0))


def _bytes(b: Value, n: Value, size: int) -> Value:
    return b.mul(n, I64(size))


def _exp(b: Value, x: Value) -> Value:
    """exp by range reduction and a polynomial (Cephes' expf): within 2 ulp; 0 below -87, saturated above 88."""
    clamped = _call(b, "llvm.minnum.v16f32", _call(b, "llvm.maxnum.v16f32", x, _const(-87.0)), _const(88.0))
    n = _call(b, "llvm.rint.v16f32", b.fmul(clamped, _const(1.44269504088896341)))
    r = _fma(b, n, _const(-0.693359375), clamped)
    r = _fma(b, n, _const(2.12194440e-4), r)
    p = _const(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = _fma(b, p, r, _const(c))
    y = b.fadd(_fma(b, p, b.fmul(r, r), r), _const(1.0))
    exponent = b.add(b.fptosi(n, _vector(I32)), ir.Constant(_vector(I32), [127] * LANES))
    power = b.bitcast(b.shl(exponent, ir.Constant(_vector(I32), [23] * LANES)), _vector(F32))
    return b.select(b.fcmp_ordered("<", x, _const(-87.0)), _const(0.0), b.fmul(y, power))


def _blocks(b: Value, n: Value) -> Value:
    """A loop over `n` elements, LANES at a time; its index counts blocks."""
    return cgutils.for_range(b, b.udiv(n, I64(LANES)))


Codegen = Callable[..., Value]


def _kernel(returns: Any, *params: Any) -> Callable[[Codegen], Any]:
    """Makes a numba intrinsic of a function `(builder, *arguments) -> value or None`."""

    def wrap(emit: Codegen) -> Any:
        def codegen(context: Any, builder: Value, signature: Any, args: Sequence[Value]) -> Value:
            result = emit(builder, *args)
            return context.get_dummy_value() if result is None else result

        def typing(typingctx: Any, *_: Any) -> Any:
            return returns(*params), codegen

        # numba takes the number of arguments from the signature
        names = ["typingctx", *(f"a{i}" for i in range(len(params)))]
        typing.__signature__ = Signature([Parameter(n, Parameter.POSITIONAL_OR_KEYWORD) for n in names])  # type: ignore[attr-defined]
        typing.__name__, typing.__doc__ = emit.__name__, emit.__doc__
        return intrinsic(typing)

    return wrap


_VOID, _ADDRESS, _COUNT, _FLOAT = types.void, types.uintp, types.intp, types.float32


@_kernel(_FLOAT, _ADDRESS, _ADDRESS, _COUNT)
def dot(b: Value, x: Value, y: Value, n: Value) -> Value:
    """sum of x[i] * y[i]: lane i % 16 takes its products in order, then the lanes are folded in halves."""
    total = cgutils.alloca_once_value(b, _const(0.0))
    b.store(_const(0.0), total)
    with _blocks(b, n) as loop:
        offset = _bytes(b, loop.index, 4 * LANES)
        lane_x, lane_y = (_load(b, b.add(a, offset), _vector(F32)) for a in (x, y))
        b.store(_fma(b, lane_x, lane_y, b.load(total)), total)
    return _halves(b, b.load(total), b.fadd)


@_kernel(_FLOAT, _ADDRESS, _COUNT)
def total(b: Value, x: Value, n: Value) -> Value:
    """sum of x[i], lanes as in `dot`."""
    acc = cgutils.alloca_once_value(b, _const(0.0))
    b.store(_const(0.0), acc)
    with _blocks(b, n) as loop:
        b.store(b.fadd(b.load(acc), _load(b, b.add(x, _bytes(b, loop.index, 4 * LANES)), _vector(F32))), acc)
    return _halves(b, b.load(acc), b.fadd)


@_kernel(_FLOAT, _ADDRESS, _COUNT)
def abs_max(b: Value, x: Value, n: Value) -> Value:
    acc = cgutils.alloca_once_value(b, _const(0.0))
    b.store(_const(0.0), acc)
    with _blocks(b, n) as loop:
        value = _load(b, b.add(x, _bytes(b, loop.index, 4 * LANES)), _vector(F32))
        b.store(_call(b, "llvm.maxnum.v16f32", b.load(acc), _call(b, "llvm.fabs.v16f32", value)), acc)
    return _halves(b, b.load(acc), lambda p, q: _call(b, f"llvm.maxnum.v{p.type.count}f32", p, q))


@_kernel(_FLOAT, _ADDRESS, _COUNT)
def maximum(b: Value, x: Value, n: Value) -> Value:
    acc = cgutils.alloca_once_value(b, _const(0.0))
    b.store(_const(float("-inf")), acc)
    with _blocks(b, n) as loop:
        value = _load(b, b.add(x, _bytes(b, loop.index, 4 * LANES)), _vector(F32))
        b.store(_call(b, "llvm.maxnum.v16f32", b.load(acc), value), acc)
    return _halves(b, b.load(acc), lambda p, q: _call(b, f"llvm.maxnum.v{p.type.count}f32", p, q))


@_kernel(_VOID, _ADDRESS, _FLOAT, _COUNT)
def exp_minus(b: Value, x: Value, shift: Value, n: Value) -> None:
    """x[i] = exp(x[i] - shift), in place."""
    shifts = _splat(b, shift)
    with _blocks(b, n) as loop:
        address = b.add(x, _bytes(b, loop.index, 4 * LANES))
        _store(b, _exp(b, b.fsub(_load(b, address, _vector(F32)), shifts)), address)


@_kernel(_VOID, _ADDRESS, _ADDRESS, _ADDRESS, _COUNT)
def silu_times(b: Value, gate: Value, up: Value, out: Value, n: Value) -> None:
    """out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]"""
    with _blocks(b, n) as loop:
        offset = _bytes(b, loop.index, 4 * LANES)
        g, u = (_load(b, b.add(a, offset), _vector(F32)) for a in (gate, up))
        denominator = b.fadd(_const(1.0), _exp(b, b.fneg(g)))
        _store(b, b.fmul(b.fdiv(g, denominator), u), b.add(out, offset))


@_kernel(_VOID, _ADDRESS, _ADDRESS, _COUNT)
def add_to(b: Value, x: Value, y: Value, n: Value) -> None:
    """x[i] += y[i]"""
    with _blocks(b, n) as loop:
        offset = _bytes(b, loop.index, 4 * LANES)
        lane_x, lane_y = (_load(b, b.add(a, offset), _vector(F32)) for a in (x, y))
        _store(b, b.fadd(lane_x, lane_y), b.add(x, offset))


@_kernel(_VOID, _ADDRESS, _FLOAT, _ADDRESS, _ADDRESS, _COUNT)
def scale_by(b: Value, x: Value, factor: Value, weight: Value, out: Value, n: Value) -> None:
    """out[i] = x[i] * factor * weight[i]"""
    factors = _splat(b, factor)
    with _blocks(b, n) as loop:
        offset = _bytes(b, loop.index, 4 * LANES)
        lane_x, lane_w = (_load(b, b.add(a, offset), _vector(F32)) for a in (x, weight))
        _store(b, b.fmul(b.fmul(lane_x, factors), lane_w), b.add(out, offset))


@_kernel(_VOID, _ADDRESS, _FLOAT, _ADDRESS, _COUNT)
def to_int16(b: Value, x: Value, factor: Value, out: Value, n: Value) -> None:
    """out[i] = round-half-even(x[i] * factor) as int16; |x[i] * factor| is at most QMAX."""
    factors = _splat(b, factor)
    with _blocks(b, n) as loop:
        value = b.fmul(_load(b, b.add(x, _bytes(b, loop.index, 4 * LANES)), _vector(F32)), factors)
        whole = b.fptosi(_call(b, "llvm.rint.v16f32", value), _vector(I32))
        _store(b, b.trunc(whole, _vector(I16)), b.add(out, _bytes(b, loop.index, 2 * LANES)))


@_kernel(_VOID, _ADDRESS, _ADDRESS, _ADDRESS, _COUNT)
def rotate_half(b: Value, x: Value, cos: Value, sin: Value, half: Value) -> None:
    """Rope on one head in place: x[i], x[i + half] turn by the angle of i. `half` is a multiple of 8."""
    with cgutils.for_range(b, b.udiv(half, I64(8))) as loop:
        offset = _bytes(b, loop.index, 32)
        low, high = b.add(x, offset), b.add(b.add(x, offset), _bytes(b, half, 4))
        p, q, c, s = (_load(b, a, _vector(F32, 8)) for a in (low, high, b.add(cos, offset), b.add(sin, offset)))
        _store(b, b.fsub(b.fmul(p, c), b.fmul(q, s)), low)
        _store(b, b.fadd(b.fmul(q, c), b.fmul(p, s)), high)


def _weighted_rows(lanes: int) -> Any:
    @_kernel(_VOID, _ADDRESS, _ADDRESS, _COUNT, _COUNT, _ADDRESS)
    def weighted_rows(b: Value, weight: Value, rows: Value, stride: Value, n: Value, out: Value) -> None:
        """out[d] += weight[j] * rows[j * stride + d] for j = 0 .. n - 1 in order, d < lanes."""
        acc = cgutils.alloca_once(b, _vector(F32, lanes))
        b.store(_load(b, out, _vector(F32, lanes)), acc)
        with cgutils.for_range(b, n) as loop:
            w = _splat(b, _load(b, b.add(weight, _bytes(b, loop.index, 4)), F32), lanes)
            row = _load(b, b.add(rows, b.mul(loop.index, _bytes(b, stride, 4))), _vector(F32, lanes))
            b.store(_fma(b, w, row, b.load(acc)), acc)
        _store(b, b.load(acc), out)

    return weighted_rows


weighted_rows_16, weighted_rows_64 = _weighted_rows(16), _weighted_rows(64)


def _madd(b: Value, w: Value, x: Value) -> Value:
    """[32] int16 times [32] int16, neighbours added: [16] int32 (what x86 calls pmaddwd)."""
    product = b.mul(b.sext(w, _vector(I32, 32)), b.sext(x, _vector(I32, 32)))
    return b.add(_shuffle(b, product, range(0, 32, 2)), _shuffle(b, product, range(1, 32, 2)))


def _panel_int8(rows: int) -> Any:
    unroll = 8 // rows  # pairs of inputs a step: enough independent loads to keep memory busy

    @_kernel(_VOID, _ADDRESS, _ADDRESS, _ADDRESS, _COUNT, _ADDRESS, _ADDRESS, _COUNT, _COUNT)
    def panel_int8(
        b: Value, w: Value, scale: Value, x: Value, stride: Value, x_scale: Value, out: Value, ostride: Value, n: Value
    ) -> None:
        """16 outputs of `rows` rows. w: int8 [n/2, 16, 2]; scale: float32 [n/GROUP, 16]; x: int16 [rows, stride].

        out[r, o] = x_scale[r] * sum over groups, in order, of scale[group, o] * (exact integer sum of the group).
        """
        facc = [cgutils.alloca_once(b, _vector(F32)) for _ in range(rows)]
        iacc = [cgutils.alloca_once(b, _vector(I32)) for _ in range(rows)]
        for acc in facc:
            b.store(_const(0.0), acc)
        with cgutils.for_range(b, b.udiv(n, I64(GROUP))) as groups:
            for acc in iacc:
                b.store(ir.Constant(_vector(I32), [0] * LANES), acc)
            w_group = b.add(w, _bytes(b, groups.index, GROUP * LANES))
            x_group = b.add(x, _bytes(b, groups.index, GROUP * 2))
            with cgutils.for_range(b, I64(GROUP // 2 // unroll)) as steps:
                for u in range(unroll):
                    pair = b.add(b.mul(steps.index, I64(unroll)), I64(u))
                    wide = b.sext(_load(b, b.add(w_group, _bytes(b, pair, 32)), _vector(I8, 32)), _vector(I16, 32))
                    for r, acc in enumerate(iacc):
                        address = b.add(b.add(x_group, _bytes(b, pair, 4)), _bytes(b, stride, 2 * r))
                        both = b.bitcast(_splat(b, _load(b, address, I32)), _vector(I16, 32))
                        b.store(b.add(b.load(acc), _madd(b, wide, both)), acc)
            scales = _load(b, b.add(scale, _bytes(b, groups.index, 4 * LANES)), _vector(F32))
            for whole, acc in zip(iacc, facc, strict=True):
                b.store(_fma(b, b.sitofp(b.load(whole), _vector(F32)), scales, b.load(acc)), acc)
        for r, acc in enumerate(facc):
            row_scale = _splat(b, _load(b, b.add(x_scale, I64(4 * r)), F32))
            _store(b, b.fmul(b.load(acc), row_scale), b.add(out, _bytes(b, ostride, 4 * r)))

    return panel_int8


panel_int8_1, panel_int8_2, panel_int8_4 = _panel_int8(1), _panel_int8(2), _panel_int8(4)


def _panel_float32(rows: int) -> Any:
    @_kernel(_VOID, _ADDRESS, _ADDRESS, _COUNT, _ADDRESS, _COUNT, _COUNT)
    def panel_float32(b: Value, w: Value, x: Value, stride: Value, out: Value, ostride: Value, n: Value) -> None:
        """16 outputs of `rows` rows. w: float32 [n, 16]; x: float32 [rows, stride]. Inputs are added in order."""
        accs = [cgutils.alloca_once(b, _vector(F32)) for _ in range(rows)]
        for acc in accs:
            b.store(_const(0.0), acc)
        with cgutils.for_range(b, n) as loop:
            column = _load(b, b.add(w, _bytes(b, loop.index, 4 * LANES)), _vector(F32))
            for r, acc in enumerate(accs):
                address = b.add(b.add(x, _bytes(b, loop.index, 4)), _bytes(b, stride, 4 * r))
                b.store(_fma(b, column, _splat(b, _load(b, address, F32)), b.load(acc)), acc)
        for r, acc in enumerate(accs):
            _store(b, b.load(acc), b.add(out, _bytes(b, ostride, 4 * r)))

    return panel_float32


panel_float32_1, panel_float32_2, panel_float32_4 = _panel_float32(1), _panel_float32(2), _panel_float32(4)


@_kernel(_VOID, _ADDRESS, _FLOAT)
def put(b: Value, address: Value, value: Value) -> None:
    _store(b, value, address)


@_kernel(_FLOAT, _ADDRESS)
def get(b: Value, address: Value) -> Value:
    return _load(b, address, F32)


@_kernel(_VOID, _ADDRESS, _ADDRESS, _COUNT)
def copy(b: Value, source: Value, target: Value, n: Value) -> None:
    with _blocks(b, n) as loop:
        offset = _bytes(b, loop.index, 4 * LANES)
        _store(b, _load(b, b.add(source, offset), _vector(F32)), b.add(target, offset))


@_kernel(_VOID, _ADDRESS, _FLOAT, _COUNT)
def fill(b: Value, x: Value, value: Value, n: Value) -> None:
    values = _splat(b, value)
    with _blocks(b, n) as loop:
        _store(b, values, b.add(x, _bytes(b, loop.index, 4 * LANES)))


@_kernel(_VOID, _ADDRESS, _FLOAT, _COUNT)
def multiply(b: Value, x: Value, factor: Value, n: Value) -> None:
    """x[i] *= factor"""
    factors = _splat(b, factor)
    with _blocks(b, n) as loop:
        address = b.add(x, _bytes(b, loop.index, 4 * LANES))
        _store(b, b.fmul(_load(b, address, _vector(F32)), factors), address)


@_kernel(_COUNT, _ADDRESS, _COUNT)
def fetch_add(b: Value, address: Value, amount: Value) -> Value:
    """Atomically adds to an int64; returns what it was."""
    return b.atomic_rmw("add", _at(b, address, I64), amount, "seq_cst")


@_kernel(_COUNT, _ADDRESS)
def load_acquire(b: Value, address: Value) -> Value:
    return b.load_atomic(_at(b, address, I64), "acquire", 8)


@_kernel(_VOID)
def yield_processor(b: Value) -> None:
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, []), "sched_yield")
    b.call(function, [])
