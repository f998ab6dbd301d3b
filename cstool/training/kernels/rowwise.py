"""Matrix products in which each row of the result depends on its own row of x alone, to the bit.

A BLAS chooses its kernels, and with them the order of sums, by the shape of the whole product. Here every element of
the result is summed in one order, beside any other rows: 16 partial sums along the row, then these together, then
the rest of the row. So a token gets the same bits alone, in a batch, and as a part of its whole prompt.

Weights may be bfloat16; they become floats as they are read, so the result is the same as with float32 weights.
Where there are many rows of x a few rows of the weight become floats in memory first.

Single-threaded, without the interpreter lock; ranges of the rows of a weight may go to different threads.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import (
    BFLOAT16_BYTES,
    FLOAT,
    FLOAT_BYTES,
    FOUR,
    INT32,
    INT64,
    LANES,
    LINE_BYTES,
    VECTOR,
    VECTOR_BYTES,
    Builder,
    Memory,
    Value,
    emit_prefetch,
    emitted,
    loop,
    multiply_add,
    splat,
    sums_of_four,
)
from cstool.training.kernels.bfloat16 import widen
from cstool.training.kernels.spin import take

ROWS = FOUR
"""rows of the weight that a tile has"""
TOKENS = 4
"""most rows of x of a tile: 16 sums hide the time of each multiply and add"""
TURN_NUMBERS = 32 * 1024
"""numbers of a weight that a thread takes at a time, about: some ten microseconds of reading them"""
LONE_ROWS = 8
"""rows of the weight that go with a single row of x: the weight is read once, and this many sums hide their latency"""
FETCHED_BYTES = 12 * 1024
"""largest tile of a weight whose successor is fetched while several rows of x are multiplied with it. Rows of a larger
one are long: the processor itself fetches along each, and the next tile would take the first cache too soon"""
LONE_FETCHED_BYTES = 16 * 1024
"""the same beside a single row of x, which needs little of the cache"""
FEW_TOKENS = 8
"""most rows of x for which bfloat16 becomes floats in registers, once for `TOKENS` of them"""


def _make_dot_tile(tokens: int, rows: int, of_bfloat16: bool, *, fetches: bool = False) -> Any:
    """Return dot(x, x_stride, weight, weight_stride, y, y_stride, width, after), which writes a tile of x weight^T.

    Addresses and strides in bytes; `rows` is 1 or a multiple of 4; `of_bfloat16` is about the weight. A tile that
    `fetches` waits for memory: the next one, at `after`, is prefetched meanwhile.
    """

    def emit(
        b: Builder,
        x: Value,
        x_stride: Value,
        weight: Value,
        weight_stride: Value,
        y: Value,
        y_stride: Value,
        n: Value,
        after: Value,
    ) -> None:
        def lines(address: Value, stride: Value, count: int) -> list[Memory]:
            return [Memory(b, b.add(address, b.mul(stride, ir.Constant(INT64, i)))) for i in range(count)]

        xs, weights = lines(x, x_stride, tokens), lines(weight, weight_stride, rows)
        whole = b.and_(n, ir.Constant(INT64, -LANES))

        def body(i: Value, *sums: Value) -> Sequence[Value]:
            left = [m.load(b.mul(i, ir.Constant(INT64, FLOAT_BYTES))) for m in xs]
            right = [_numbers(b, m, i, of_bfloat16, LANES) for m in weights]
            if fetches:
                # In the order of memory: eight streams at once are half as fast.
                row_bytes = rows * _size_bytes(of_bfloat16)
                line = b.add(after, b.mul(i, ir.Constant(INT64, row_bytes)))
                for offset in range(0, row_bytes * LANES, LINE_BYTES):
                    emit_prefetch(b, b.add(line, ir.Constant(INT64, offset)))
            return [multiply_add(b, left[k // rows], right[k % rows], total) for k, total in enumerate(sums)]

        zeros = [ir.Constant(VECTOR, [0.0] * LANES)] * (tokens * rows)
        sums = loop(b, ir.Constant(INT64, 0), whole, LANES, zeros, body)
        for t, line in enumerate(lines(y, y_stride, tokens)):
            for r in range(0, rows, FOUR):
                group = [sums[t * rows + min(r + j, rows - 1)] for j in range(FOUR)]
                quad = sums_of_four(b, group)
                found = quad if rows >= FOUR else b.extract_element(quad, ir.Constant(INT32, 0))
                # Mostly nothing is left of a row, and one store is faster than four loops without a turn.
                with b.if_else(b.icmp_signed("==", whole, n)) as (is_whole, otherwise):
                    with is_whole:
                        line.store(r * FLOAT_BYTES, found)
                    with otherwise:
                        for j in range(min(FOUR, rows)):
                            begun = b.extract_element(quad, ir.Constant(INT32, j))
                            (total,) = loop(b, whole, n, 1, [begun], _rest(b, xs[t], weights[r + j], of_bfloat16))
                            line.store((r + j) * FLOAT_BYTES, total)

    return emitted(emit, 8)


def _numbers(b: Builder, memory: Memory, i: Value, of_bfloat16: bool, lanes: int | None) -> Value:
    """Load floats from the i-th on: `lanes` of them as a vector; None for a single one."""
    offset = b.mul(i, ir.Constant(INT64, _size_bytes(of_bfloat16)))
    if of_bfloat16:
        return memory.load_bfloat16(offset, lanes)
    return memory.load(offset, FLOAT if lanes is None else VECTOR)


def _size_bytes(of_bfloat16: bool) -> int:
    return BFLOAT16_BYTES if of_bfloat16 else FLOAT_BYTES


def _rest(b: Builder, x: Memory, weight: Memory, of_bfloat16: bool) -> Any:
    """Return the body of a loop over the last elements of a row, one by one."""

    def body(i: Value, total: Value) -> Sequence[Value]:
        number = x.load(b.mul(i, ir.Constant(INT64, FLOAT_BYTES)), FLOAT)
        return [multiply_add(b, number, _numbers(b, weight, i, of_bfloat16, None), total)]

    return body


def _make_dots(of_bfloat16: bool) -> Any:
    tile: Any = _make_dot_tile(TOKENS, ROWS, of_bfloat16)
    last_tile: Any = _make_dot_tile(TOKENS, ROWS, of_bfloat16, fetches=True)
    line: Any = _make_dot_tile(1, LONE_ROWS, of_bfloat16)
    short: Any = _make_dot_tile(1, LONE_ROWS, of_bfloat16, fetches=True)
    one: Any = _make_dot_tile(1, 1, of_bfloat16)
    size = _size_bytes(of_bfloat16)

    def dots(x, x_stride, tokens, weight, weight_stride, rows, y, y_stride, width, after):  # type: ignore[no-untyped-def]
        whole = tokens - tokens % TOKENS
        if whole:
            for r in range(0, rows if rows >= ROWS else 0, ROWS):
                at = min(r, rows - ROWS)
                row, column = weight + at * weight_stride, y + at * FLOAT_BYTES
                last = whole - TOKENS if ROWS * width * size <= FETCHED_BYTES else whole
                for t in range(0, last, TOKENS):
                    tile(x + t * x_stride, x_stride, row, weight_stride, column + t * y_stride, y_stride, width, row)
                ahead = row + ROWS * weight_stride if r + ROWS < rows else after
                for t in range(last, whole, TOKENS):
                    place = column + t * y_stride
                    last_tile(x + t * x_stride, x_stride, row, weight_stride, place, y_stride, width, ahead)
        first = whole if rows >= ROWS else 0
        for r in range(0, rows if rows >= LONE_ROWS else 0, LONE_ROWS):
            at = min(r, rows - LONE_ROWS)
            row, column = weight + at * weight_stride, y + at * FLOAT_BYTES
            ahead = row + LONE_ROWS * weight_stride if r + LONE_ROWS < rows else after
            for t in range(first, tokens):
                place = column + t * y_stride, y_stride, width, ahead
                if LONE_ROWS * width * size <= LONE_FETCHED_BYTES:
                    short(x + t * x_stride, x_stride, row, weight_stride, *place)
                else:
                    line(x + t * x_stride, x_stride, row, weight_stride, *place)
        if rows < LONE_ROWS:
            for t in range(first, tokens):
                for r in range(rows):
                    row, column = weight + r * weight_stride, y + r * FLOAT_BYTES
                    one(x + t * x_stride, x_stride, row, weight_stride, column + t * y_stride, y_stride, width, row)

    # Compiled forms are linked by name and types. Forms compiled in different processes may have the same number, and
    # two functions that differ in the variables they capture must not have the same name as well.
    dots.__qualname__ = "dots_of_bfloat16" if of_bfloat16 else "dots_of_float32"
    return elementwise(dots)


dots: Any = _make_dots(of_bfloat16=False)
"""dots(x, x_stride, tokens, weight, weight_stride, rows, y, y_stride, width, after) writes x weight^T, (tokens, rows).

Addresses and strides in bytes, all of floats; the memory to be read next begins at `after`. Where the number of rows
of a weight does not divide evenly, the last ones are computed together with rows before them, again."""
_dots_of_bfloat16: Any = _make_dots(of_bfloat16=True)
"""the same of a weight in bfloat16"""


def _make_weighted_sum(vectors: int) -> Any:
    """Return sum(shares, count, rows, stride, y), a kernel: it adds rows, each times its share, to vectors of y.

    The sums stay in registers; each goes over the rows in their order.
    """

    def emit(b: Builder, shares: Value, count: Value, rows: Value, stride: Value, y: Value) -> None:
        weights, target = Memory(b, shares), Memory(b, y)
        places = [v * VECTOR_BYTES for v in range(vectors)]

        def body(i: Value, *sums: Value) -> Sequence[Value]:
            share = splat(b, weights.load(b.mul(i, ir.Constant(INT64, FLOAT_BYTES)), FLOAT))
            row = Memory(b, b.add(rows, b.mul(i, stride)))
            return [multiply_add(b, share, row.load(p), total) for p, total in zip(places, sums, strict=True)]

        begun = [target.load(place) for place in places]
        for place, total in zip(places, loop(b, ir.Constant(INT64, 0), count, 1, begun, body), strict=True):
            target.store(place, total)

    return emitted(emit, 5)


WIDE = 4
"""vectors whose weighted sums are made together"""
_sum_wide: Any = _make_weighted_sum(WIDE)
_sum_pair: Any = _make_weighted_sum(2)
_sum_narrow: Any = _make_weighted_sum(1)


@elementwise
def add_weighted(shares, rows, first, y):  # type: ignore[no-untyped-def]
    """Add rows of a matrix from `first` on, each times its share, one after the other."""
    count, width, stride = shares.shape[0], y.shape[0], rows.strides[0]
    begin, at, target = shares.ctypes.data, rows.ctypes.data + first * stride, y.ctypes.data
    done = 0
    while done + WIDE * LANES <= width:
        _sum_wide(begin, count, at + done * FLOAT_BYTES, stride, target + done * FLOAT_BYTES)
        done += WIDE * LANES
    while done + 2 * LANES <= width:
        _sum_pair(begin, count, at + done * FLOAT_BYTES, stride, target + done * FLOAT_BYTES)
        done += 2 * LANES
    while done + LANES <= width:
        _sum_narrow(begin, count, at + done * FLOAT_BYTES, stride, target + done * FLOAT_BYTES)
        done += LANES
    for j in range(count):
        for d in range(done, width):
            y[d] += shares[j] * rows[first + j, d]


def multiply_columns(x: Any, weight: Any, y: Any, start: int, stop: int, following: int, memory: Any) -> None:
    """Compute columns `start` to `stop` of y = x weight^T. To be called from kernels.

    Args:
        following: row of the weight with which the thread will go on
        memory: (rows, in) float32, for rows of a bfloat16 weight
    """


@overload(multiply_columns)
def _multiplied(x, weight, y, start, stop, following, memory):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def by_floats(x, weight, y, start, stop, following, memory):  # type: ignore[no-untyped-def]  # noqa: ARG001
        stride, column = weight.strides[0], y.ctypes.data + start * FLOAT_BYTES
        row, after = weight.ctypes.data + start * stride, weight.ctypes.data + following * stride
        place = column, y.strides[0], x.shape[1], after
        dots(x.ctypes.data, x.strides[0], x.shape[0], row, stride, stop - start, *place)

    def by_bfloat16(x, weight, y, start, stop, following, memory):  # type: ignore[no-untyped-def]
        stride, column = weight.strides[0], y.ctypes.data + start * FLOAT_BYTES
        row, after = weight.ctypes.data + start * stride, weight.ctypes.data + following * stride
        if x.shape[0] <= FEW_TOKENS:
            place = column, y.strides[0], x.shape[1], after
            _dots_of_bfloat16(x.ctypes.data, x.strides[0], x.shape[0], row, stride, stop - start, *place)
            return
        row, stride = memory.ctypes.data, memory.strides[0]
        for first in range(start, stop, memory.shape[0]):
            rows = min(memory.shape[0], stop - first)
            for r in range(rows):
                for j in range(x.shape[1]):
                    memory[r, j] = widen(weight[first + r, j])
            place = y.ctypes.data + first * FLOAT_BYTES, y.strides[0], x.shape[1], row
            dots(x.ctypes.data, x.strides[0], x.shape[0], row, stride, rows, *place)

    return by_floats if isinstance(weight.dtype, types.Float) else by_bfloat16


@elementwise
def _linear(x, weight, bias, y, start, stop, following, memory):  # type: ignore[no-untyped-def]
    multiply_columns(x, weight, y, start, stop, following, memory)
    if bias.shape[0] > 0:
        for t in range(y.shape[0]):
            for r in range(start, stop):
                y[t, r] += bias[r]


@elementwise
def linear_turns(x, weight, bias, y, taken, index, rows):  # type: ignore[no-untyped-def]
    """The kernel of `linear_by_turns`; `bias` is empty for none, `rows` of the weight are a turn."""
    count, wide = weight.shape[0], weight.itemsize == FLOAT_BYTES or x.shape[0] <= FEW_TOKENS
    memory = np.empty((0 if wide else rows, x.shape[1]), np.float32)
    start = take(taken.ctypes.data + index * 8, rows)
    while start < count:
        following = take(taken.ctypes.data + index * 8, rows)
        _linear(x, weight, bias, y, start, min(start + rows, count), following if following < count else start, memory)
        start = following


@elementwise
def _linear_whole(x, weight, bias, y, rows):  # type: ignore[no-untyped-def]
    count, wide = weight.shape[0], weight.itemsize == FLOAT_BYTES or x.shape[0] <= FEW_TOKENS
    memory = np.empty((0 if wide else rows, x.shape[1]), np.float32)
    _linear(x, weight, bias, y, 0, count, 0, memory)


@elementwise
def take_rows(x, rows, y):  # type: ignore[no-untyped-def]
    """Copy rows of x, (T, width) float32, to y, (n, width) float32, by their numbers, (n,) int64."""
    for i in range(rows.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[rows[i], j]


_NO_BIAS = np.zeros(0, np.float32)


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray) -> None:
    """Compute y = x weight^T + bias; the arrays are as for `linear_by_turns`, and so are the bits."""
    _linear_whole(x, weight, _NO_BIAS if bias is None else bias, y, rows_of_turn(weight))


def rows_of_turn(weight: np.ndarray) -> int:
    """Rows of a weight that a thread takes at a time."""
    rows: int = TURN_NUMBERS // weight.shape[1] // LONE_ROWS * LONE_ROWS
    return max(LONE_ROWS, rows)


def linear_by_turns(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray, taken: np.ndarray, index: int
) -> None:
    """Compute the rest of y = x weight^T + bias, a few rows of the weight at a time, while others do the same.

    A thread that the machine keeps from its work takes less of it.

    Args:
        x: (T, in) float32, rows contiguous
        weight: (rows, in) float32 or bfloat16, rows contiguous
        bias: (rows,) float32 or None
        y: (T, rows) float32, rows contiguous, written
        taken: (n,) int64, shared
        index: of the counter of rows that are taken already; 0 at first
    """
    linear_turns(x, weight, _NO_BIAS if bias is None else bias, y, taken, index, rows_of_turn(weight))
