"""Matrix products in which each row of the result depends on its own row of x alone, to the bit.

A BLAS chooses its kernels, and with them the order of sums, by the shape of the whole product. Here every element of
the result is summed in one order, beside any other rows: 16 partial sums along the row, then these together, then
the rest of the row. So a token gets the same bits alone, in a batch, and as a part of its whole prompt.

Weights may be bfloat16. Then rows of x are rounded to it as well, and a partial sum is over pairs, of each two the
second first: that of 16 lanes is an instruction of CPUs with AVX512_BF16, on others two with the same bits. Products
are exact, sums are float32.

Single-threaded, without the interpreter lock; ranges of the rows of a weight may go to different threads.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from cstool.foundation.compiled.atomics import take
from cstool.foundation.compiled.intrinsics import FLOAT, INT32, INT64, Builder, Value, emitted
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import (
    BFLOAT16_BYTES,
    FLOAT_BYTES,
    FOUR,
    LANES,
    LINE_BYTES,
    VECTOR,
    VECTOR_BYTES,
    Memory,
    emit_prefetch,
    has_instructions,
    loop,
    multiply_add,
    splat,
    sums_of_four,
)
from cstool.training.kernels.bfloat16 import narrow
from cstool.training.kernels.packed_rows import TURN_ROWS, multiply_packed, pack_rows, vectors_of
from cstool.training.kernels.vdpbf16ps import add_products

ROWS = FOUR
"""rows of the weight that a tile has"""
TOKENS = 4
"""most rows of x of a tile: 16 sums hide the time of each multiply and add"""
TURN_NUMBERS = 32 * 1024
"""numbers of a weight that a thread takes at a time, about: some ten microseconds of reading them"""
PACKS = not has_instructions("avx512f")
"""whether several rows of x are packed; else there are registers for the tiles of this module"""
LONE_ROWS = 4 if PACKS else 8
"""rows of the weight that go with a single row of x: the weight is read once, and this many sums hide their latency"""
FETCHED_BYTES = 12 * 1024
"""largest tile of a weight whose successor is fetched while several rows of x are multiplied with it. Rows of a larger
one are long: the processor itself fetches along each, and the next tile would take the first cache too soon"""
LONE_FETCHED_BYTES = 16 * 1024
"""the same beside a single row of x, which needs little of the cache"""
NEAR_TOKENS = 32
"""rows of x that go with all rows of a turn before the next of them do, so that they stay in the second cache"""
LONG_TURN_NUMBERS = 4 * TURN_NUMBERS
"""the same as `TURN_NUMBERS` beside more rows of x than these, all of which are read for each turn"""


def _make_dot_tile(tokens: int, rows: int, of_pairs: bool, *, lines_ahead: int = 0) -> Any:
    """Return dot(x, x_stride, weight, weight_stride, y, y_stride, width, after), which writes a tile of x weight^T.

    Addresses and strides in bytes; `rows` is 1 or a multiple of 4. Of pairs both operands are bfloat16, else float32.
    With each 64 bytes of a row so many lines of memory are prefetched: those from `after` on.
    """
    size, per_item = (BFLOAT16_BYTES, 2) if of_pairs else (FLOAT_BYTES, 1)
    add = add_products if of_pairs else multiply_add

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

        def body(i: Value, *sums: Value) -> Sequence[Value]:
            offset = b.mul(i, ir.Constant(INT64, size))
            left, right = ([m.load(offset) for m in operand] for operand in (xs, weights))
            line = b.add(after, b.mul(offset, ir.Constant(INT64, lines_ahead)))
            for k in range(lines_ahead):
                # In the order of memory: eight streams at once are half as fast.
                emit_prefetch(b, b.add(line, ir.Constant(INT64, k * LINE_BYTES)))
            return [add(b, left[k // rows], right[k % rows], total) for k, total in enumerate(sums)]

        xs, weights = lines(x, x_stride, tokens), lines(weight, weight_stride, rows)
        step = LANES * per_item
        whole = b.and_(n, ir.Constant(INT64, -step))
        zeros = [ir.Constant(VECTOR, [0.0] * LANES)] * (tokens * rows)
        sums = loop(b, ir.Constant(INT64, 0), whole, step, zeros, body)
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
                            (total,) = loop(b, whole, n, 1, [begun], _rest(b, xs[t], weights[r + j], of_pairs))
                            line.store((r + j) * FLOAT_BYTES, total)

    return emitted(emit, 8)


def _rest(b: Builder, x: Memory, weight: Memory, of_bfloat16: bool) -> Any:
    """Return the body of a loop over the last elements of a row, one by one."""

    def number(memory: Memory, i: Value) -> Value:
        if of_bfloat16:
            return memory.load_bfloat16(b.mul(i, ir.Constant(INT64, BFLOAT16_BYTES)), None)
        return memory.load(b.mul(i, ir.Constant(INT64, FLOAT_BYTES)), FLOAT)

    def body(i: Value, total: Value) -> Sequence[Value]:
        return [multiply_add(b, number(x, i), number(weight, i), total)]

    return body


def _make_dots(of_pairs: bool) -> Any:
    tile: Any = _make_dot_tile(TOKENS, ROWS, of_pairs)
    quarter: Any = _make_dot_tile(TOKENS, ROWS, of_pairs, lines_ahead=1)
    last: Any = _make_dot_tile(TOKENS, ROWS, of_pairs, lines_ahead=ROWS)
    line: Any = _make_dot_tile(1, LONE_ROWS, of_pairs)
    short: Any = _make_dot_tile(1, LONE_ROWS, of_pairs, lines_ahead=LONE_ROWS)
    one: Any = _make_dot_tile(1, 1, of_pairs)
    size = BFLOAT16_BYTES if of_pairs else FLOAT_BYTES

    def dots(x, x_stride, tokens, weight, weight_stride, rows, y, y_stride, width, after):  # type: ignore[no-untyped-def]
        whole = 0 if PACKS or rows < ROWS else tokens - tokens % TOKENS
        # The next rows of the weight are fetched by the first tiles, a row by each, or all of them by the last tile.
        quarters = ROWS * TOKENS if whole >= ROWS * TOKENS else 0
        final = whole - TOKENS if quarters == 0 and ROWS * width * size <= FETCHED_BYTES else whole
        for begin in range(0, whole, NEAR_TOKENS):
            end = min(begin + NEAR_TOKENS, whole)
            for r in range(0, rows, ROWS):
                at = min(r, rows - ROWS)
                row, column = weight + at * weight_stride, y + at * FLOAT_BYTES
                ahead = row + ROWS * weight_stride if r + ROWS < rows else after
                for t in range(begin, end, TOKENS):
                    begins, place = x + t * x_stride, column + t * y_stride
                    if t < quarters:
                        next_row = ahead + t // TOKENS * weight_stride
                        quarter(begins, x_stride, row, weight_stride, place, y_stride, width, next_row)
                    elif t < final:
                        tile(begins, x_stride, row, weight_stride, place, y_stride, width, row)
                    else:
                        last(begins, x_stride, row, weight_stride, place, y_stride, width, ahead)
        for r in range(0, rows if rows >= LONE_ROWS else 0, LONE_ROWS):
            at = min(r, rows - LONE_ROWS)
            row, column = weight + at * weight_stride, y + at * FLOAT_BYTES
            ahead = row + LONE_ROWS * weight_stride if r + LONE_ROWS < rows else after
            for t in range(whole, tokens):
                place = column + t * y_stride, y_stride, width, ahead
                if LONE_ROWS * width * size <= LONE_FETCHED_BYTES:
                    short(x + t * x_stride, x_stride, row, weight_stride, *place)
                else:
                    line(x + t * x_stride, x_stride, row, weight_stride, *place)
        if rows < LONE_ROWS:
            for t in range(whole, tokens):
                for r in range(rows):
                    row, column = weight + r * weight_stride, y + r * FLOAT_BYTES
                    one(x + t * x_stride, x_stride, row, weight_stride, column + t * y_stride, y_stride, width, row)

    # Compiled forms are linked by name and types. Forms compiled in different processes may have the same number, and
    # two functions that differ in the variables they capture must not have the same name as well.
    dots.__qualname__ = "dots_of_pairs" if of_pairs else "dots_of_floats"
    return elementwise(dots)


dots: Any = _make_dots(of_pairs=False)
"""dots(x, x_stride, tokens, weight, weight_stride, rows, y, y_stride, width, after) writes x weight^T, (tokens, rows).

Addresses and strides in bytes, all of floats; the memory to be read next begins at `after`. Where the number of rows
of a weight does not divide evenly, the last ones are computed together with rows before them, again."""
_dots_of_pairs: Any = _make_dots(of_pairs=True)
"""the same of x and a weight in bfloat16"""


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


def rounded(x: Any, weight: Any) -> Any:  # noqa: ARG001
    """Return x, (T, in) float32, as it meets a weight: itself, or rounded to bfloat16. To be called from kernels."""


@overload(rounded)
def _rounded(x, weight):  # type: ignore[no-untyped-def]  # noqa: ARG001
    if isinstance(weight.dtype, types.Float):
        return lambda x, weight: x  # noqa: ARG005

    def to_bfloat16(x, weight):  # type: ignore[no-untyped-def]  # noqa: ARG001
        found = np.empty(x.shape, np.uint16)
        for t in range(x.shape[0]):
            for j in range(x.shape[1]):
                found[t, j] = narrow(x[t, j], found)
        return found

    return to_bfloat16


def multiply_columns(x: Any, weight: Any, y: Any, start: int, stop: int, following: int) -> None:
    """Compute columns `start` to `stop` of y = x weight^T. To be called from kernels.

    Args:
        x: of `rounded`
        following: row of the weight with which the thread will go on
    """


@overload(multiply_columns)
def _multiplied(x, weight, y, start, stop, following):  # type: ignore[no-untyped-def]  # noqa: ARG001
    compute = dots if isinstance(weight.dtype, types.Float) else _dots_of_pairs

    def multiplied(x, weight, y, start, stop, following):  # type: ignore[no-untyped-def]
        stride, column = weight.strides[0], y.ctypes.data + start * FLOAT_BYTES
        row, after = weight.ctypes.data + start * stride, weight.ctypes.data + following * stride
        place = column, y.strides[0], x.shape[1], after
        compute(x.ctypes.data, x.strides[0], x.shape[0], row, stride, stop - start, *place)

    return multiplied


@elementwise
def _packed(x):  # type: ignore[no-untyped-def]
    """Return x packed for `multiply_packed`: empty for fewer rows than a tile, and on CPUs with more registers."""
    return pack_rows(x, vectors_of(x) if PACKS and x.shape[0] >= TOKENS else 0)


@elementwise
def _linear(x, packed, weight, bias, y, start, stop, following):  # type: ignore[no-untyped-def]
    if PACKS and packed.shape[0] > 0:
        multiply_packed(x, packed, weight, y, start, stop, following)
    else:
        multiply_columns(x, weight, y, start, stop, following)
    if bias.shape[0] > 0:
        for t in range(y.shape[0]):
            for r in range(start, stop):
                y[t, r] += bias[r]


@elementwise
def linear_turns(x, weight, bias, y, taken, index, rows):  # type: ignore[no-untyped-def]
    """The kernel of `linear_by_turns`; x is of `rounded`, `bias` is empty for none, `rows` of the weight are a turn."""
    count, packed = weight.shape[0], _packed(x)
    start = take(taken.ctypes.data + index * 8, rows)
    while start < count:
        following = take(taken.ctypes.data + index * 8, rows)
        _linear(x, packed, weight, bias, y, start, min(start + rows, count), following if following < count else start)
        start = following


@elementwise
def _linear_by_turns(x, weight, bias, y, taken, index, rows):  # type: ignore[no-untyped-def]
    linear_turns(rounded(x, weight), weight, bias, y, taken, index, rows)


@elementwise
def _linear_whole(x, weight, bias, y, rows):  # type: ignore[no-untyped-def]
    meeting, count = rounded(x, weight), weight.shape[0]
    packed = _packed(meeting)
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        _linear(meeting, packed, weight, bias, y, start, stop, stop % count)


@elementwise
def take_rows(x, rows, y):  # type: ignore[no-untyped-def]
    """Copy rows of x, (T, width) float32, to y, (n, width) float32, by their numbers, (n,) int64."""
    for i in range(rows.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[rows[i], j]


_NO_BIAS = np.zeros(0, np.float32)


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray) -> None:
    """Compute y = x weight^T + bias; the arrays are as for `linear_by_turns`, and so are the bits."""
    _linear_whole(x, weight, _NO_BIAS if bias is None else bias, y, rows_of_turn(x, weight))


def rows_of_turn(x: np.ndarray, weight: np.ndarray) -> int:
    """Rows of a weight that a thread takes at a time."""
    if PACKS and len(x) >= TOKENS:
        return TURN_ROWS
    numbers = TURN_NUMBERS if len(x) <= NEAR_TOKENS else LONG_TURN_NUMBERS
    rows: int = numbers // weight.shape[1] // LONE_ROWS * LONE_ROWS
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
    _linear_by_turns(x, weight, _NO_BIAS if bias is None else bias, y, taken, index, rows_of_turn(x, weight))
