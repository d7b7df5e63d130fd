"""The decoder layers of one pass, as one native call a thread.

Threads share every phase: rows or output panels are dealt out, and a barrier separates phases that read what others
wrote. Who computes a number never changes it (see `lanes`). Everything is reached by address, through three tables: the
plan (int64, the constants below), the rows, and the layers' addresses. `clocks` is told what each phase took.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uintp
from numba.core.types import Array

from hetspec.jit import kernel, part
from hetspec.model import lanes
from hetspec.model import operators as op
from hetspec.model import panels as kernels
from hetspec.model.lanes import LANES, QMAX
from hetspec.model.pack import GROUP

PAGE = 32  # positions a KV page

# The plan's entries: shapes (elements), then addresses, then offsets (bytes) of a layer's fields; -1 where it has none.
(
    HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, QKV, INT8, INPUT_STRIDE, SCORE_STRIDE, THREADS, ROWS, FIRST, LAST,
    EPS, X, NORMED, QKV_OUT, ATTENDED, GATE_UP_OUT, PROJECTED, INPUT, INPUT_SCALE, SCORES, COS, SIN, BARRIER,
    ATTN_NORM, Q_NORM, K_NORM, QKV_BIAS, FFN_NORM, QKV_W, QKV_SCALE, O_W, O_SCALE, GATE_UP_W, GATE_UP_SCALE, DOWN_W,
    DOWN_SCALE, PLAN_SIZE,
) = range(40)  # fmt: skip

# The columns of the row table. A row attends to positions [0, PREFIX), which lie in slots of the same number, then to
# the slots path[PATH_START : PATH_START + PATH_LEN], its own last; PAGES is where its session's pages begin.
POSITION, SLOT, PREFIX, PATH_START, PATH_LEN, PAGES, ROW_COLUMNS = range(7)

_plan, _table, _list = Array(int64, 1, "C"), Array(int64, 2, "C"), Array(int64, 1, "C")
_SMALLEST_TOP = np.float32(1e-30)  # a row below it is taken for zeros: its factor would overflow
_SPINS = 20000  # about 50 us: longer than a phase's imbalance, shorter than a time slice


@part
def barrier(plan: Any) -> None:
    """Waits until all threads of the pass are here. The counter only grows; waiting gives the processor away."""
    threads = plan[THREADS]
    if threads == 1:
        return
    arrived = lanes.fetch_add(plan[BARRIER], 1) + 1
    target = (arrived + threads - 1) // threads * threads
    spins = 0
    while lanes.load_acquire(plan[BARRIER]) < target:
        spins += 1
        if spins > _SPINS:
            lanes.yield_processor()


@part
def end_phase(plan: Any, clocks: Any, thread: int, operator: int) -> None:
    """All threads have done their share of an operator when this returns."""
    op.note(clocks, thread, operator, plan[ROWS])
    if plan[THREADS] > 1:
        barrier(plan)
        op.note(clocks, thread, op.WAIT, plan[ROWS])


@part
def share(n: int, thread: int, threads: int) -> tuple[int, int]:
    return n * thread // threads, n * (thread + 1) // threads


@part
def quantise(plan: Any, row: int, x: int, n: int) -> None:
    """A float32 row becomes the row-th input of an int8 linear: int16 with one scale, zeros up to the next group."""
    top = lanes.abs_max(x, n)
    out = plan[INPUT] + row * plan[INPUT_STRIDE] * 2
    factor = np.float32(QMAX) / top if top > _SMALLEST_TOP else np.float32(0)
    lanes.to_int16(x, factor, out, n)
    lanes.put(plan[INPUT_SCALE] + row * 4, top / np.float32(QMAX))
    for i in range(n, (n + GROUP - 1) // GROUP * GROUP, 2):
        lanes.put(out + i * 2, np.float32(0))


@part
def linear(
    plan: Any, w: int, scale: int, x: int, x_stride: int, inputs: int, out: int, panels: int, rows: int,
    thread: int,
) -> None:  # fmt: skip
    """out [rows, panels * 16] = x [rows, inputs] times w; int8 reads the plan's INPUT instead of x."""
    first, last = share(panels, thread, plan[THREADS])
    width = panels * LANES
    if plan[INT8]:
        k = (inputs + GROUP - 1) // GROUP * GROUP
        stride, q, qs = plan[INPUT_STRIDE], plan[INPUT], plan[INPUT_SCALE]
        groups = k // GROUP
        blocks = rows // 4 + (rows % 4 + 1) // 2
        # of each group of the next panel, a block of rows fetches so many lines
        lines = (GROUP * LANES // kernels.CACHE_LINE + blocks - 1) // blocks
        block_bytes = groups * lines * kernels.CACHE_LINE
        for panel in range(first, last):
            wp, sp, op = w + panel * k * LANES, scale + panel * groups * LANES * 4, out + panel * LANES * 4
            ahead = wp + k * LANES
            r = 0
            while r + 4 <= rows:
                kernels.panel_int8_4(
                    wp, sp, q + r * stride * 2, stride, qs + r * 4, op + r * width * 4, width, k, ahead, lines
                )
                r += 4
                ahead += block_bytes
            if r + 2 <= rows:
                kernels.panel_int8_2(
                    wp, sp, q + r * stride * 2, stride, qs + r * 4, op + r * width * 4, width, k, ahead, lines
                )
                r += 2
                ahead += block_bytes
            if r < rows:
                kernels.panel_int8_1(
                    wp, sp, q + r * stride * 2, stride, qs + r * 4, op + r * width * 4, width, k, ahead, lines
                )
    else:
        for panel in range(first, last):
            wp, op = w + panel * inputs * LANES * 4, out + panel * LANES * 4
            r = 0
            while r + 4 <= rows:
                kernels.panel_float32_4(wp, x + r * x_stride * 4, x_stride, op + r * width * 4, width, inputs)
                r += 4
            if r + 2 <= rows:
                kernels.panel_float32_2(wp, x + r * x_stride * 4, x_stride, op + r * width * 4, width, inputs)
                r += 2
            if r < rows:
                kernels.panel_float32_1(wp, x + r * x_stride * 4, x_stride, op + r * width * 4, width, inputs)


@part
def norm_factor(x: int, n: int, eps: np.float32) -> Any:
    return np.float32(1) / np.sqrt(lanes.dot(x, x, n) / np.float32(n) + eps)


@part
def norm(plan: Any, row: int, weight: int, eps: np.float32) -> None:
    """RMS norm of the residual row, made ready as an input."""
    hidden = plan[HIDDEN]
    x, out = plan[X] + row * hidden * 4, plan[NORMED] + row * hidden * 4
    lanes.scale_by(x, norm_factor(x, hidden, eps), weight, out, hidden)
    if plan[INT8]:
        quantise(plan, row, out, hidden)


@part
def add_projected(plan: Any, row: int) -> None:
    lanes.add_to(plan[X] + row * plan[HIDDEN] * 4, plan[PROJECTED] + row * plan[HIDDEN] * 4, plan[HIDDEN])


@part
def slot_address(plan: Any, pages: Any, start: int, slot: int, layer: int, value: int, head: int) -> Any:
    """Of a position's key (value = 0) or value (1): a page is float32 [layers, 2, kv_heads, PAGE, head_dim]."""
    block = ((layer * 2 + value) * plan[KV_HEADS] + head) * PAGE + slot % PAGE
    return pages[start + slot // PAGE] + block * plan[HEAD_DIM] * 4


@part
def rope_and_store(plan: Any, table: Any, pages: Any, layer: int, weights: int, row: int, eps: np.float32) -> None:
    """Bias, q/k norm and rope in place; the key and value go to the row's slot."""
    dim, heads, kv_heads = plan[HEAD_DIM], plan[HEADS], plan[KV_HEADS]
    x = plan[QKV_OUT] + row * plan[QKV] * 4
    if plan[QKV_BIAS] >= 0:
        lanes.add_to(x, weights + plan[QKV_BIAS], plan[QKV])
    angle = table[row, POSITION] * (dim // 2) * 4
    for head in range(heads + kv_heads):
        q = x + head * dim * 4
        if plan[Q_NORM] >= 0:
            weight = weights + (plan[Q_NORM] if head < heads else plan[K_NORM])
            lanes.scale_by(q, norm_factor(q, dim, eps), weight, q, dim)
        lanes.rotate_half(q, plan[COS] + angle, plan[SIN] + angle, dim // 2)
    for head in range(kv_heads):
        for value in range(2):
            source = x + (heads + value * kv_heads + head) * dim * 4
            target = slot_address(plan, pages, table[row, PAGES], table[row, SLOT], layer, value, head)
            lanes.copy(source, target, dim)


@part
def add_values(plan: Any, weight: int, values: int, n: int, out: int) -> None:
    dim = plan[HEAD_DIM]
    d = 0
    while d + 64 <= dim:
        lanes.weighted_rows_64(weight, values + d * 4, dim, n, out + d * 4)
        d += 64
    while d < dim:
        lanes.weighted_rows_16(weight, values + d * 4, dim, n, out + d * 4)
        d += LANES


@part
def score(q: int, keys: int, dim: int, n: int, scale: np.float32, out: int) -> None:
    """out[j] = q . keys[j] * scale, j < n."""
    j = 0
    while j + 4 <= n:
        lanes.scaled_dots_4(q, keys + j * dim * 4, dim, scale, out + j * 4)
        j += 4
    while j < n:
        lanes.put(out + j * 4, lanes.dot(q, keys + j * dim * 4, dim) * scale)
        j += 1


@part
def attend(plan: Any, table: Any, path: Any, pages: Any, layer: int, row: int, head: int, scores: int) -> None:
    """One row, one KV head and the query heads that share it; position after position, whatever slots they lie in."""
    dim, group, start = plan[HEAD_DIM], plan[HEADS] // plan[KV_HEADS], table[row, PAGES]
    prefix, first, length = table[row, PREFIX], table[row, PATH_START], table[row, PATH_LEN]
    n = prefix + length
    padded = (n + LANES - 1) // LANES * LANES
    stride = plan[SCORE_STRIDE] * 4
    q = plan[QKV_OUT] + (row * plan[QKV] + head * group * dim) * 4
    out = plan[ATTENDED] + (row * plan[HEADS] + head * group) * dim * 4
    scale = np.float32(1) / np.sqrt(np.float32(dim))
    for position in range(0, prefix, PAGE):
        keys = slot_address(plan, pages, start, position, layer, 0, head)
        for g in range(group):
            score(q + g * dim * 4, keys, dim, min(PAGE, prefix - position), scale, scores + g * stride + position * 4)
    for j in range(length):
        key = slot_address(plan, pages, start, path[first + j], layer, 0, head)
        for g in range(group):
            score(q + g * dim * 4, key, dim, 1, scale, scores + g * stride + (prefix + j) * 4)
    for g in range(group):
        for j in range(n, padded):
            lanes.put(scores + g * stride + j * 4, np.float32(-np.inf))
        lanes.exp_minus(scores + g * stride, lanes.maximum(scores + g * stride, padded), padded)
        lanes.fill(out + g * dim * 4, np.float32(0), dim)
    for position in range(0, prefix, PAGE):
        values = slot_address(plan, pages, start, position, layer, 1, head)
        for g in range(group):
            weight = scores + g * stride + position * 4
            add_values(plan, weight, values, min(PAGE, prefix - position), out + g * dim * 4)
    for j in range(length):
        value = slot_address(plan, pages, start, path[first + j], layer, 1, head)
        for g in range(group):
            add_values(plan, scores + g * stride + (prefix + j) * 4, value, 1, out + g * dim * 4)
    for g in range(group):
        lanes.multiply(out + g * dim * 4, np.float32(1) / lanes.total(scores + g * stride, padded), dim)


@part
def activate(plan: Any, row: int) -> None:
    ffn = plan[FFN]
    gate = plan[GATE_UP_OUT] + row * 2 * ffn * 4
    lanes.silu_times(gate, gate + ffn * 4, gate, ffn)
    if plan[INT8]:
        quantise(plan, row, gate, ffn)


@part
def layer_pass(
    plan: Any, table: Any, path: Any, pages: Any, clocks: Any, layer: int, weights: int, thread: int, eps: np.float32
) -> None:
    """One layer, from the residual rows to the residual rows."""
    threads, rows, hidden = plan[THREADS], plan[ROWS], plan[HIDDEN]
    q_size = plan[HEADS] * plan[HEAD_DIM]
    scores = plan[SCORES] + thread * (plan[HEADS] // plan[KV_HEADS]) * plan[SCORE_STRIDE] * 4
    for row in range(thread, rows, threads):
        norm(plan, row, weights + plan[ATTN_NORM], eps)
    end_phase(plan, clocks, thread, op.ATTENTION_NORM)
    linear(
        plan, weights + plan[QKV_W], weights + plan[QKV_SCALE], plan[NORMED], hidden, hidden, plan[QKV_OUT],
        plan[QKV] // LANES, rows, thread,
    )  # fmt: skip
    end_phase(plan, clocks, thread, op.QKV)
    for row in range(thread, rows, threads):
        rope_and_store(plan, table, pages, layer, weights, row, eps)
    end_phase(plan, clocks, thread, op.ROPE)
    for task in range(thread, rows * plan[KV_HEADS], threads):
        attend(plan, table, path, pages, layer, task // plan[KV_HEADS], task % plan[KV_HEADS], scores)
    end_phase(plan, clocks, thread, op.ATTENTION)
    if plan[INT8]:
        for row in range(thread, rows, threads):
            quantise(plan, row, plan[ATTENDED] + row * q_size * 4, q_size)
        end_phase(plan, clocks, thread, op.QUANTISE)
    linear(
        plan, weights + plan[O_W], weights + plan[O_SCALE], plan[ATTENDED], q_size, q_size, plan[PROJECTED],
        hidden // LANES, rows, thread,
    )  # fmt: skip
    end_phase(plan, clocks, thread, op.OUTPUT)
    for row in range(thread, rows, threads):
        add_projected(plan, row)
        norm(plan, row, weights + plan[FFN_NORM], eps)
    end_phase(plan, clocks, thread, op.FFN_NORM)
    linear(
        plan, weights + plan[GATE_UP_W], weights + plan[GATE_UP_SCALE], plan[NORMED], hidden, hidden,
        plan[GATE_UP_OUT], 2 * plan[FFN] // LANES, rows, thread,
    )  # fmt: skip
    end_phase(plan, clocks, thread, op.GATE_UP)
    for row in range(thread, rows, threads):
        activate(plan, row)
    end_phase(plan, clocks, thread, op.ACTIVATION)
    linear(
        plan, weights + plan[DOWN_W], weights + plan[DOWN_SCALE], plan[GATE_UP_OUT], 2 * plan[FFN], plan[FFN],
        plan[PROJECTED], hidden // LANES, rows, thread,
    )  # fmt: skip
    end_phase(plan, clocks, thread, op.DOWN)
    for row in range(thread, rows, threads):
        add_projected(plan, row)
    end_phase(plan, clocks, thread, op.RESIDUAL)


@kernel(_plan, _table, _list, _list, _list, op.table_type, int64)
def run_layers(plan: Any, table: Any, path: Any, pages: Any, layers: Any, clocks: Any, thread: int) -> None:
    """Layers FIRST to LAST - 1 of a pass.

    layers: address of each layer's segment. pages: addresses of KV pages, a session's in a row.
    """
    eps = np.float32(lanes.get(plan[EPS]))
    op.start_clock(clocks, thread)
    for layer in range(plan[FIRST], plan[LAST]):
        layer_pass(plan, table, path, pages, clocks, layer, layers[layer], thread, eps)


@kernel(_plan, uintp, uintp, uintp, int64, op.table_type, int64, int64)
def run_projection(
    plan: Any, norm_weight: int, w: int, scale: int, panels: int, clocks: Any, operator: int, thread: int
) -> None:
    """RMS norm and a linear layer of the plan's rows, into PROJECTED [rows, panels * 16].

    operator: the norm's, for the clocks; the linear's is the next.
    """
    eps = np.float32(lanes.get(plan[EPS]))
    op.start_clock(clocks, thread)
    for row in range(thread, plan[ROWS], plan[THREADS]):
        norm(plan, row, norm_weight, eps)
    end_phase(plan, clocks, thread, operator)
    linear(plan, w, scale, plan[NORMED], plan[HIDDEN], plan[HIDDEN], plan[PROJECTED], panels, plan[ROWS], thread)
    end_phase(plan, clocks, thread, operator + 1)
