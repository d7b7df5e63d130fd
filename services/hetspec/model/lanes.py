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
from time import CLOCK_MONOTONIC
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hetspec.model.pack import PANEL

LANES = PANEL

QMAX = 32767  # activations are 16-bit integers: a group's sum is below 32 * 127 * 32767 < 2**31

I8, I16, I32, I64, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
Value = Any  # an llvmlite value; llvmlite carries no types


def vec(element: Value, width: int = LANES) -> Value:
    return ir.VectorType(element, width)


def _at(b: Value, address: Value, element: Value) -> Value:
    return b.inttoptr(address, element.as_pointer())


def load(b: Value, address: Value, element: Value) -> Value:
    return b.load(_at(b, address, element), align=4 if element != vec(I8, 32) else 1)


def store(b: Value, value: Value, address: Value) -> None:
    b.store(value, _at(b, address, value.type), align=2 if value.type == vec(I16) else 4)


def shuffle(b: Value, vector: Value, order: Sequence[int]) -> Value:
    mask = ir.Constant(vec(I32, len(order)), list(order))
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _joined(b: Value, vectors: Sequence[Value]) -> Value:
    """Vectors of one width, a power of two of them, end to end."""
    while len(vectors) > 1:
        width = 2 * vectors[0].type.count
        mask = ir.Constant(vec(I32, width), list(range(width)))
        vectors = [b.shuffle_vector(p, q, mask) for p, q in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def splat(b: Value, scalar: Value, width: int = LANES) -> Value:
    one = b.insert_element(ir.Constant(vec(scalar.type, width), ir.Undefined), scalar, I32(0))
    return shuffle(b, one, [0] * width)


def const(value: float, width: int = LANES) -> Value:
    return ir.Constant(vec(F32, width), [value] * width)


def _call(b: Value, name: str, *args: Value) -> Value:
    """An LLVM intrinsic that maps vectors of one type to that type."""
    kind = args[0].type
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(kind, [kind] * len(args)), name)
    return b.call(function, args)


def fma(b: Value, x: Value, y: Value, z: Value) -> Value:
    return _call(b, f"llvm.fma.v{x.type.count}f32", x, y, z)


def _halves(b: Value, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """Folds the lanes of a vector: upper half onto lower half until one is left."""
    width = vector.type.count
    while width > 1:
        width //= 2
        low, high = shuffle(b, vector, range(width)), shuffle(b, vector, range(width, 2 * width))
        vector = combine(low, high)
    return b.extract_element(vector, I32(0))


def _halves_of_each(b: Value, vectors: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """`_halves` of several vectors at once: a vector of what each of them folds to."""
    width, folded = vectors[0].type.count, _joined(b, vectors)
    while width > 1:
        width //= 2
        low = [2 * width * v + i for v in range(len(vectors)) for i in range(width)]
        folded = combine(shuffle(b, folded, low), shuffle(b, folded, [i + width for i in low]))
    return folded


def scaled(b: Value, n: Value, size: int) -> Value:
    return b.mul(n, I64(size))


def prefetch(b: Value, address: Value) -> None:
    """Asks for the cache line at `address` to be brought near; the address need not be one that may be read."""
    pointer = _at(b, address, I8)
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
    read, near, data = I32(0), I32(2), I32(1)  # near: into the second cache; the first has no room for two panels
    b.call(cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0"), [pointer, read, near, data])


def _exp(b: Value, x: Value) -> Value:
    """exp by range reduction and a polynomial (Cephes' expf): within 2 ulp; 0 below -87, saturated above 88."""
    clamped = _call(b, "llvm.minnum.v16f32", _call(b, "llvm.maxnum.v16f32", x, const(-87.0)), const(88.0))
    n = _call(b, "llvm.rint.v16f32", b.fmul(clamped, const(1.44269504088896341)))
    r = fma(b, n, const(-0.693359375), clamped)
    r = fma(b, n, const(2.12194440e-4), r)
    p = const(1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fma(b, p, r, const(c))
    y = b.fadd(fma(b, p, b.fmul(r, r), r), const(1.0))
    exponent = b.add(b.fptosi(n, vec(I32)), ir.Constant(vec(I32), [127] * LANES))
    power = b.bitcast(b.shl(exponent, ir.Constant(vec(I32), [23] * LANES)), vec(F32))
    return b.select(b.fcmp_ordered("<", x, const(-87.0)), const(0.0), b.fmul(y, power))


def _blocks(b: Value, n: Value) -> Value:
    """A loop over `n` elements, LANES at a time; its index counts blocks."""
    return cgutils.for_range(b, b.udiv(n, I64(LANES)))


Codegen = Callable[..., Value]


def intrinsic_of(returns: Any, *params: Any) -> Callable[[Codegen], Any]:
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


VOID, ADDRESS, COUNT, FLOAT = types.void, types.uintp, types.intp, types.float32


@intrinsic_of(FLOAT, ADDRESS, ADDRESS, COUNT)
def dot(b: Value, x: Value, y: Value, n: Value) -> Value:
    """sum of x[i] * y[i]: lane i % 16 takes its products in order, then the lanes are folded in halves."""
    total = cgutils.alloca_once_value(b, const(0.0))
    b.store(const(0.0), total)
    with _blocks(b, n) as loop:
        offset = scaled(b, loop.index, 4 * LANES)
        lane_x, lane_y = (load(b, b.add(a, offset), vec(F32)) for a in (x, y))
        b.store(fma(b, lane_x, lane_y, b.load(total)), total)
    return _halves(b, b.load(total), b.fadd)


@intrinsic_of(VOID, ADDRESS, ADDRESS, COUNT, FLOAT, ADDRESS)
def scaled_dots_4(b: Value, x: Value, rows: Value, n: Value, factor: Value, out: Value) -> None:
    """out[j] = dot(x, rows[j]) * factor for rows [4, n], to the bit as one at a time."""
    totals = [cgutils.alloca_once(b, vec(F32)) for _ in range(4)]
    for acc in totals:
        b.store(const(0.0), acc)
    with _blocks(b, n) as loop:
        offset = scaled(b, loop.index, 4 * LANES)
        lane_x = load(b, b.add(x, offset), vec(F32))
        for j, acc in enumerate(totals):
            row = load(b, b.add(b.add(rows, offset), scaled(b, n, 4 * j)), vec(F32))
            b.store(fma(b, lane_x, row, b.load(acc)), acc)
    dots = _halves_of_each(b, [b.load(acc) for acc in totals], b.fadd)
    store(b, b.fmul(dots, splat(b, factor, 4)), out)


@intrinsic_of(FLOAT, ADDRESS, COUNT)
def total(b: Value, x: Value, n: Value) -> Value:
    """sum of x[i], lanes as in `dot`."""
    acc = cgutils.alloca_once_value(b, const(0.0))
    b.store(const(0.0), acc)
    with _blocks(b, n) as loop:
        b.store(b.fadd(b.load(acc), load(b, b.add(x, scaled(b, loop.index, 4 * LANES)), vec(F32))), acc)
    return _halves(b, b.load(acc), b.fadd)


@intrinsic_of(FLOAT, ADDRESS, COUNT)
def abs_max(b: Value, x: Value, n: Value) -> Value:
    acc = cgutils.alloca_once_value(b, const(0.0))
    b.store(const(0.0), acc)
    with _blocks(b, n) as loop:
        value = load(b, b.add(x, scaled(b, loop.index, 4 * LANES)), vec(F32))
        b.store(_call(b, "llvm.maxnum.v16f32", b.load(acc), _call(b, "llvm.fabs.v16f32", value)), acc)
    return _halves(b, b.load(acc), lambda p, q: _call(b, f"llvm.maxnum.v{p.type.count}f32", p, q))


@intrinsic_of(FLOAT, ADDRESS, COUNT)
def maximum(b: Value, x: Value, n: Value) -> Value:
    acc = cgutils.alloca_once_value(b, const(0.0))
    b.store(const(float("-inf")), acc)
    with _blocks(b, n) as loop:
        value = load(b, b.add(x, scaled(b, loop.index, 4 * LANES)), vec(F32))
        b.store(_call(b, "llvm.maxnum.v16f32", b.load(acc), value), acc)
    return _halves(b, b.load(acc), lambda p, q: _call(b, f"llvm.maxnum.v{p.type.count}f32", p, q))


@intrinsic_of(VOID, ADDRESS, FLOAT, COUNT)
def exp_minus(b: Value, x: Value, shift: Value, n: Value) -> None:
    """x[i] = exp(x[i] - shift), in place."""
    shifts = splat(b, shift)
    with _blocks(b, n) as loop:
        address = b.add(x, scaled(b, loop.index, 4 * LANES))
        store(b, _exp(b, b.fsub(load(b, address, vec(F32)), shifts)), address)


@intrinsic_of(VOID, ADDRESS, ADDRESS, ADDRESS, COUNT)
def silu_times(b: Value, gate: Value, up: Value, out: Value, n: Value) -> None:
    """out[i] = gate[i] / (1 + exp(-gate[i])) * up[i]"""
    with _blocks(b, n) as loop:
        offset = scaled(b, loop.index, 4 * LANES)
        g, u = (load(b, b.add(a, offset), vec(F32)) for a in (gate, up))
        denominator = b.fadd(const(1.0), _exp(b, b.fneg(g)))
        store(b, b.fmul(b.fdiv(g, denominator), u), b.add(out, offset))


@intrinsic_of(VOID, ADDRESS, ADDRESS, COUNT)
def add_to(b: Value, x: Value, y: Value, n: Value) -> None:
    """x[i] += y[i]"""
    with _blocks(b, n) as loop:
        offset = scaled(b, loop.index, 4 * LANES)
        lane_x, lane_y = (load(b, b.add(a, offset), vec(F32)) for a in (x, y))
        store(b, b.fadd(lane_x, lane_y), b.add(x, offset))


@intrinsic_of(VOID, ADDRESS, FLOAT, ADDRESS, ADDRESS, COUNT)
def scale_by(b: Value, x: Value, factor: Value, weight: Value, out: Value, n: Value) -> None:
    """out[i] = x[i] * factor * weight[i]"""
    factors = splat(b, factor)
    with _blocks(b, n) as loop:
        offset = scaled(b, loop.index, 4 * LANES)
        lane_x, lane_w = (load(b, b.add(a, offset), vec(F32)) for a in (x, weight))
        store(b, b.fmul(b.fmul(lane_x, factors), lane_w), b.add(out, offset))


@intrinsic_of(VOID, ADDRESS, FLOAT, ADDRESS, COUNT)
def to_int16(b: Value, x: Value, factor: Value, out: Value, n: Value) -> None:
    """out[i] = round-half-even(x[i] * factor) as int16; |x[i] * factor| is at most QMAX."""
    factors = splat(b, factor)
    with _blocks(b, n) as loop:
        value = b.fmul(load(b, b.add(x, scaled(b, loop.index, 4 * LANES)), vec(F32)), factors)
        whole = b.fptosi(_call(b, "llvm.rint.v16f32", value), vec(I32))
        store(b, b.trunc(whole, vec(I16)), b.add(out, scaled(b, loop.index, 2 * LANES)))


@intrinsic_of(VOID, ADDRESS, ADDRESS, ADDRESS, COUNT)
def rotate_half(b: Value, x: Value, cos: Value, sin: Value, half: Value) -> None:
    """Rope on one head in place: x[i], x[i + half] turn by the angle of i. `half` is a multiple of 8."""
    with cgutils.for_range(b, b.udiv(half, I64(8))) as loop:
        offset = scaled(b, loop.index, 32)
        low, high = b.add(x, offset), b.add(b.add(x, offset), scaled(b, half, 4))
        p, q, c, s = (load(b, a, vec(F32, 8)) for a in (low, high, b.add(cos, offset), b.add(sin, offset)))
        store(b, b.fsub(b.fmul(p, c), b.fmul(q, s)), low)
        store(b, b.fadd(b.fmul(q, c), b.fmul(p, s)), high)


def _weighted_rows(lanes: int) -> Any:
    @intrinsic_of(VOID, ADDRESS, ADDRESS, COUNT, COUNT, ADDRESS)
    def weighted_rows(b: Value, weight: Value, rows: Value, stride: Value, n: Value, out: Value) -> None:
        """out[d] += weight[j] * rows[j * stride + d] for j = 0 .. n - 1 in order, d < lanes."""
        acc = cgutils.alloca_once(b, vec(F32, lanes))
        b.store(load(b, out, vec(F32, lanes)), acc)
        with cgutils.for_range(b, n) as loop:
            w = splat(b, load(b, b.add(weight, scaled(b, loop.index, 4)), F32), lanes)
            row = load(b, b.add(rows, b.mul(loop.index, scaled(b, stride, 4))), vec(F32, lanes))
            b.store(fma(b, w, row, b.load(acc)), acc)
        store(b, b.load(acc), out)

    return weighted_rows


weighted_rows_16, weighted_rows_64 = _weighted_rows(16), _weighted_rows(64)


@intrinsic_of(VOID, ADDRESS, FLOAT)
def put(b: Value, address: Value, value: Value) -> None:
    store(b, value, address)


@intrinsic_of(FLOAT, ADDRESS)
def get(b: Value, address: Value) -> Value:
    return load(b, address, F32)


@intrinsic_of(VOID, ADDRESS, ADDRESS, COUNT)
def copy(b: Value, source: Value, target: Value, n: Value) -> None:
    with _blocks(b, n) as loop:
        offset = scaled(b, loop.index, 4 * LANES)
        store(b, load(b, b.add(source, offset), vec(F32)), b.add(target, offset))


@intrinsic_of(VOID, ADDRESS, FLOAT, COUNT)
def fill(b: Value, x: Value, value: Value, n: Value) -> None:
    values = splat(b, value)
    with _blocks(b, n) as loop:
        store(b, values, b.add(x, scaled(b, loop.index, 4 * LANES)))


@intrinsic_of(VOID, ADDRESS, FLOAT, COUNT)
def multiply(b: Value, x: Value, factor: Value, n: Value) -> None:
    """x[i] *= factor"""
    factors = splat(b, factor)
    with _blocks(b, n) as loop:
        address = b.add(x, scaled(b, loop.index, 4 * LANES))
        store(b, b.fmul(load(b, address, vec(F32)), factors), address)


@intrinsic_of(COUNT, ADDRESS, COUNT)
def fetch_add(b: Value, address: Value, amount: Value) -> Value:
    """Atomically adds to an int64; returns what it was."""
    return b.atomic_rmw("add", _at(b, address, I64), amount, "seq_cst")


@intrinsic_of(COUNT, ADDRESS)
def load_acquire(b: Value, address: Value) -> Value:
    return b.load_atomic(_at(b, address, I64), "acquire", 8)


@intrinsic_of(VOID)
def yield_processor(b: Value) -> None:
    function = cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, []), "sched_yield")
    b.call(function, [])


@intrinsic_of(types.int64)
def monotonic_ns(b: Value) -> Value:
    """What Python's time.monotonic_ns reads. A call takes some 30 ns."""
    timespec = cgutils.alloca_once(b, ir.ArrayType(I64, 2))
    kind = ir.FunctionType(I32, [I32, timespec.type])
    b.call(cgutils.get_or_insert_function(b.module, kind, "clock_gettime"), [I32(CLOCK_MONOTONIC), timespec])
    seconds, nanoseconds = (b.load(b.gep(timespec, [I32(0), I32(i)])) for i in range(2))
    return b.add(scaled(b, seconds, 10**9), nanoseconds)
