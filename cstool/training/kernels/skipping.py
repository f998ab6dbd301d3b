"""Products of rows that are mostly zeros with a weight: only the columns of the weight that count are read.

An activation such as relu makes exact zeros, and a product with zero adds nothing to a sum. The sums are those of
`rowwise`, in its order, to the bit: of each element 16 partial sums, one for each 16th column, then these together.
A partial sum without its zeros is the same but for the sign of a zero, so elements that are zero are computed anew.
Weights must be finite, as zero times infinity is no zero.

A weight is packed for it: block after block of 128 of its rows, of a block the columns of the first partial sum, then
those of the second. So one column of a block lies in a line, and columns are read in the order of memory. Of bfloat16
a pair of columns takes the place of a column, and is skipped where both numbers are zero.

Source: Mirzadeh et al., "ReLU strikes back: exploiting activation sparsity in large language models", 2023, section 4.
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
    FLOAT_BYTES,
    LANES,
    LINE_BYTES,
    VECTOR_BYTES,
    Memory,
    emit_prefetch,
    every,
    loop,
    multiply_add,
    splat,
)
from cstool.training.kernels.bfloat16 import BFLOAT16
from cstool.training.kernels.rowwise import TOKENS, linear_turns, multiply_columns, rounded, rows_of_turn
from cstool.training.kernels.vdpbf16ps import add_products

Array = np.ndarray[Any, Any]
BLOCK = 128
"""rows of the weight whose sums stay in registers together"""
_VECTORS = BLOCK // LANES
_AHEAD = 6
"""columns that are fetched ahead"""
_INT32_BYTES = 4
WORTH = 0.35
"""share of the work of a dense product up to which skipping pays: columns are no line of memory, rows are"""


def _make_sum(of_pairs: bool) -> Any:
    """Return sum(x, places, count, columns, sums): the sums of columns, each times its number of x; or of pairs.

    Addresses: of the first number of x of a partial sum, of the places of columns, int32, of the columns of a block,
    and of 128 floats, written.
    """
    add = add_products if of_pairs else multiply_add

    def emit(b: Builder, x: Value, places: Value, count: Value, columns: Value, sums: Value) -> None:
        numbers, listed, target = Memory(b, x), Memory(b, places), Memory(b, sums)

        def place_at(i: Value) -> Value:
            return b.zext(listed.load(b.mul(i, ir.Constant(INT64, _INT32_BYTES)), INT32), INT64)

        def column_at(place: Value) -> Value:
            return b.add(columns, b.mul(place, ir.Constant(INT64, BLOCK * FLOAT_BYTES)))

        def body(i: Value, *totals: Value) -> Sequence[Value]:
            ahead = column_at(place_at(b.add(i, ir.Constant(INT64, _AHEAD))))
            for offset in range(0, BLOCK * FLOAT_BYTES, LINE_BYTES):
                emit_prefetch(b, b.add(ahead, ir.Constant(INT64, offset)))
            place = place_at(i)
            number = splat(b, numbers.load(b.mul(place, ir.Constant(INT64, VECTOR_BYTES)), FLOAT))
            column = Memory(b, column_at(place))
            return [add(b, number, column.load(v * VECTOR_BYTES), total) for v, total in enumerate(totals)]

        zeros = [every(0.0)] * _VECTORS
        for v, total in enumerate(loop(b, ir.Constant(INT64, 0), count, 1, zeros, body)):
            target.store(v * VECTOR_BYTES, total)

    return emitted(emit, 5)


_sum_of_floats: Any = _make_sum(of_pairs=False)
_sum_of_pairs: Any = _make_sum(of_pairs=True)


def _counts(x: Any, i: int) -> Any:  # noqa: ARG001
    """Whether the i-th number of a row, or pair of bfloat16, is not zero. To be called from kernels."""


@overload(_counts)
def _counting(x, i):  # type: ignore[no-untyped-def]  # noqa: ARG001
    if isinstance(x.dtype, types.Float):
        return lambda x, i: x[i] != 0
    return lambda x, i: ((x[2 * i] | x[2 * i + 1]) & 0x7FFF) != 0


@elementwise
def _list_columns(x, width, places, starts):  # type: ignore[no-untyped-def]
    """List the columns of a row of x that are not zero, for each partial sum; or the pairs of columns.

    Args:
        width: number of columns, or of pairs
        places: (in + columns ahead,) int32: number of the column among those of its partial sum
        starts: (17,) int64: first one of each partial sum
    """
    found = 0
    for lane in range(LANES):
        starts[lane] = found
        for i in range(width // LANES):
            places[found] = i
            found += _counts(x, i * LANES + lane)
    starts[LANES] = found
    for i in range(_AHEAD):
        places[found + i] = 0


@elementwise
def _fold(sums, y):  # type: ignore[no-untyped-def]
    """Add up the partial sums, (16, 128), in the order of `rowwise`; return the number of zeros among the results."""
    zeros = 0
    for r in range(y.shape[0]):
        a = (sums[0, r] + sums[8, r]) + (sums[4, r] + sums[12, r])
        b = (sums[1, r] + sums[9, r]) + (sums[5, r] + sums[13, r])
        c = (sums[2, r] + sums[10, r]) + (sums[6, r] + sums[14, r])
        d = (sums[3, r] + sums[11, r]) + (sums[7, r] + sums[15, r])
        y[r] = (a + c) + (b + d)
        zeros += y[r] == 0
    return zeros


@elementwise
def _skip_by_turns(  # type: ignore[no-untyped-def]
    x, weight, packed, bias, y, taken, index, turn, tallies, is_first
):
    tokens, count, blocks, width = x.shape[0], weight.shape[0], packed.shape[0], packed.shape[1]
    if is_first:
        zeros = 0
        for t in range(tokens):
            for j in range(x.shape[1]):
                zeros += x[t, j] == 0
        tallies[0] += zeros
        tallies[1] += x.size
    meeting, found = rounded(x, weight), 0
    for t in range(tokens):
        for i in range(width):
            found += _counts(meeting[t], i)
    if found * blocks * BLOCK > WORTH * width * count * -(-tokens // TOKENS):
        linear_turns(meeting, weight, bias, y, taken, index, turn)
        return
    places, starts = np.empty((tokens, width + _AHEAD), np.int32), np.empty((tokens, LANES + 1), np.int64)
    for t in range(tokens):
        _list_columns(meeting[t], width, places[t], starts[t])
    sums = np.empty((LANES, BLOCK), np.float32)
    block = take(taken.ctypes.data + index * 8, 1)
    while block < blocks:
        first = block * BLOCK
        last = min(first + BLOCK, count)
        for t in range(tokens):
            for lane in range(LANES):
                start, stop = starts[t, lane], starts[t, lane + 1]
                begin = meeting.ctypes.data + t * meeting.strides[0] + lane * FLOAT_BYTES
                listed = places.ctypes.data + t * places.strides[0] + start * _INT32_BYTES
                columns = packed.ctypes.data + (block * width + lane * (width // LANES)) * BLOCK * FLOAT_BYTES
                target = sums.ctypes.data + lane * VECTOR_BYTES * _VECTORS
                if weight.itemsize == FLOAT_BYTES:
                    _sum_of_floats(begin, listed, stop - start, columns, target)
                else:
                    _sum_of_pairs(begin, listed, stop - start, columns, target)
            row = y[t, first:last]
            if _fold(sums, row) > 0:
                for r in range(first, last):
                    if y[t, r] == 0:
                        multiply_columns(meeting[t : t + 1], weight, y[t : t + 1], r, r + 1, r)
            if bias.shape[0] > 0:
                for r in range(first, last):
                    y[t, r] += bias[r]
        block = take(taken.ctypes.data + index * 8, 1)


@elementwise
def _skip_whole(x, weight, packed, bias, y, turn, tallies):  # type: ignore[no-untyped-def]
    taken = np.zeros(1, np.int64)
    _skip_by_turns(x, weight, packed, bias, y, taken, 0, turn, tallies, True)


def pack(weight: Array) -> Array | None:
    """Return a weight as `skipping_linear` reads it; None where it cannot be: see the module.

    Args:
        weight: (rows, in) float32 or bfloat16

    Returns:
        (blocks, in, 128) uint32, the bits of floats: column 16 i + lane is at lane * in / 16 + i; rows beyond the last
        are zeros. Of bfloat16 (blocks, in / 2, 128), of pairs of columns likewise
    """
    is_bfloat16 = weight.dtype == BFLOAT16
    exponents = (weight & 0x7F80) == 0x7F80 if is_bfloat16 else ~np.isfinite(weight)  # noqa: PLR2004
    if weight.shape[1] % (LANES * FLOAT_BYTES // weight.itemsize) or exponents.any():
        return None
    items = weight.view(np.uint32)
    rows, width = items.shape
    packed = np.zeros((-(-rows // BLOCK), width, BLOCK), np.uint32)
    for block, into in enumerate(packed):
        part = items[block * BLOCK : (block + 1) * BLOCK]
        by_lane = part.reshape(len(part), width // LANES, LANES).transpose(2, 1, 0)
        into.reshape(LANES, width // LANES, BLOCK)[:, :, : len(part)] = by_lane
    return packed


_NO_BIAS = np.zeros(0, np.float32)


def skipping_linear(x: Array, weight: Array, packed: Array, bias: Array | None, y: Array, tallies: Array) -> None:
    """Compute y = x weight^T + bias as `rowwise.linear`, with its bits; where many numbers of x are zero, faster.

    Args:
        x: (T, in) float32, rows contiguous
        weight: (rows, in) float32 or bfloat16, rows contiguous
        packed: of `pack`
        bias: (rows,) float32 or None
        y: (T, rows) float32, rows contiguous, written
        tallies: (2,) int64: the zeros of x, and all its numbers, are added
    """
    _skip_whole(x, weight, packed, _NO_BIAS if bias is None else bias, y, rows_of_turn(x, weight), tallies)


def skipping_linear_by_turns(
    x: Array,
    weight: Array,
    packed: Array,
    bias: Array | None,
    y: Array,
    tallies: Array,
    taken: Array,
    index: int,
    *,
    is_first: bool,
) -> None:
    """Compute the rest of what `skipping_linear` does, while others do the same.

    Args:
        x, weight, packed, bias, y, tallies: as of `skipping_linear`
        taken, index: as of `rowwise.linear_by_turns`
        is_first: whether this thread counts the zeros
    """
    turn, no_bias = rows_of_turn(x, weight), _NO_BIAS if bias is None else bias
    _skip_by_turns(x, weight, packed, no_bias, y, taken, index, turn, tallies, is_first)
