"""The products of `rowwise` for CPUs with 16 vector registers, where several rows of x meet a weight: the same bits.

A tile has 4 rows of x, 3 rows of the weight, and 8 of the 16 partial sums of each pair of rows, so 12 sums stay in
registers; the other 8 partial sums come next. Rows are cut into blocks of columns, and packed so that a tile finds its
operands one behind the other in the first cache: x once for all rows of the weight, three rows of the weight for up to
64 rows of x. Between two blocks partial sums wait in memory.

Numbers of bfloat16 become floats as they are packed. Of 16 pairs of columns the second numbers come first, then the
first numbers, each in the lane of its pair. So sums have the order of `rowwise` and `vdpbf16ps`.

Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, for blocks and panels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from cstool.foundation.compiled.intrinsics import FLOAT, INT32, INT64, Builder, Value, emitted
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import (
    BFLOAT16_BYTES,
    FLOAT_BYTES,
    FOUR,
    LANES,
    VECTOR,
    VECTOR_BYTES,
    Memory,
    emit_prefetch,
    loop,
    multiply_add,
    shuffle,
    sums_of_four,
)
from cstool.training.kernels.bfloat16 import widen

TOKENS, ROWS = 4, 3
"""rows of x and of the weight of a tile"""
HALF = LANES // 2
"""partial sums of a tile"""
BLOCK = 48
"""vectors of a row in a block: 768 columns"""
PANELS = 2
"""panels of a weight for one load of a tile of x: all three stay in the first cache"""
CHUNK = 16
"""tiles of x for one packed panel of the weight: blocks and sums of 64 rows stay in the second cache"""
TURN_ROWS = 8 * ROWS
"""rows of a weight that a thread takes at a time"""
_HALF_BYTES = HALF * FLOAT_BYTES
_SUMS = 2 * TOKENS * ROWS * HALF
"""floats of all partial sums of a tile"""
_EIGHT = ir.VectorType(FLOAT, HALF)
_WORDS = ir.VectorType(INT32, LANES)


def _number(value: int) -> Value:
    return ir.Constant(INT64, value)


def _make_pack(lines: int, of_pairs: bool) -> Any:
    """Return pack(source, stride, count, vectors, ahead, target): it packs a block of up to `lines` rows.

    `count` rows, 1 at least, begin at the address `source`, `stride` bytes apart; the last one stands for missing ones.
    `vectors` of each are packed, for pairs an even number. First come the first halves: of the first vector of all
    rows, then of the second vector. Memory is prefetched `ahead` bytes behind the source.
    """

    def emit(
        b: Builder, source: Value, stride: Value, count: Value, vectors: Value, ahead: Value, target: Value
    ) -> None:
        last = b.sub(count, _number(1))

        def row(number: int) -> Memory:
            at = b.select(b.icmp_signed("<", _number(number), last), _number(number), last)
            return Memory(b, b.add(source, b.mul(at, stride)))

        sources = [row(number) for number in range(lines)]
        apart = b.mul(vectors, _number(lines * _HALF_BYTES))

        def body(i: Value) -> Sequence[Value]:
            offset = b.mul(i, _number(LANES * (BFLOAT16_BYTES if of_pairs else FLOAT_BYTES)))
            for r, memory in enumerate(sources):
                emit_prefetch(b, b.add(memory.at(offset).address, ahead))
                loaded = memory.load(offset, _WORDS if of_pairs else VECTOR)
                found = _numbers_of_pairs(b, loaded) if of_pairs else [loaded]
                for k, vector in enumerate(found):
                    at = b.mul(b.add(i, _number(k)), _number(lines * _HALF_BYTES))
                    place = Memory(b, b.add(target, at))
                    for half in (place, place.at(apart)):
                        lanes = range(HALF) if half is place else range(HALF, LANES)
                        half.store(r * _HALF_BYTES, shuffle(b, vector, None, lanes))
            return []

        loop(b, _number(0), vectors, 2 if of_pairs else 1, [], body)

    return emitted(emit, 6)


def _numbers_of_pairs(b: Builder, pairs: Value) -> list[Value]:
    """The second numbers of 16 pairs of bfloat16 as floats, and the first."""
    second = b.and_(pairs, ir.Constant(_WORDS, [0xFFFF0000] * LANES))
    return [b.bitcast(bits, VECTOR) for bits in (second, b.shl(pairs, ir.Constant(_WORDS, [16] * LANES)))]


def _emit_tile(b: Builder, x: Value, panel: Value, vectors: Value, is_begun: Value, sums: Value) -> None:
    """Add the products of a packed block of x and a packed panel of a weight to partial sums, eight of each pair.

    `x`, `panel` and `sums` are addresses. The sums, (12, 8) floats, begin with zero if they are not begun.
    """
    target = Memory(b, sums)
    before, nothing = b.block, ir.Constant(_EIGHT, None)
    with b.if_then(b.icmp_signed("!=", is_begun, _number(0))):
        loaded, then = [target.load(k * _HALF_BYTES, _EIGHT) for k in range(TOKENS * ROWS)], b.block
    start = [b.phi(_EIGHT) for _ in loaded]
    for phi, value in zip(start, loaded, strict=True):
        phi.add_incoming(value, then)
        phi.add_incoming(nothing, before)

    def body(i: Value, *totals: Value) -> Sequence[Value]:
        left = Memory(b, b.add(x, b.mul(i, _number(TOKENS * _HALF_BYTES))))
        right = Memory(b, b.add(panel, b.mul(i, _number(ROWS * _HALF_BYTES))))
        rows = [right.load(r * _HALF_BYTES, _EIGHT) for r in range(ROWS)]
        found = []
        for t in range(TOKENS):
            token = left.load(t * _HALF_BYTES, _EIGHT)
            found += [multiply_add(b, token, rows[r], totals[t * ROWS + r]) for r in range(ROWS)]
        return found

    for k, total in enumerate(loop(b, _number(0), vectors, 1, start, body)):
        target.store(k * _HALF_BYTES, total)


def _emit_fold(b: Builder, sums: Value, found: Value) -> None:
    """Add up all partial sums of a tile, (2, 12, 8) floats; write (4, 4) floats, the last column without meaning."""
    halves = Memory(b, sums), Memory(b, b.add(sums, _number(TOKENS * ROWS * _HALF_BYTES)))

    def whole(k: int) -> Value:
        first, second = (half.load(k * _HALF_BYTES, _EIGHT) for half in halves)
        return shuffle(b, first, second, range(LANES))

    for t in range(TOKENS):
        four = [whole(t * ROWS + min(r, ROWS - 1)) for r in range(FOUR)]
        Memory(b, found).store(t * FOUR * FLOAT_BYTES, sums_of_four(b, four))


_tile, _fold = emitted(_emit_tile, 5), emitted(_emit_fold, 2)


def vectors_of(x: Any) -> Any:  # noqa: ARG001
    """Count the vectors of floats of a row; columns behind them are added one by one. To be called from kernels."""


def pack_rows(x: Any, vectors: int) -> Any:  # noqa: ARG001
    """Return so many vectors of each row of x, (T, in) float32 or bfloat16, packed; to be called from kernels."""


def pack_panel(weight: Any, row: int, rows: int, vector: int, vectors: int, ahead: int, panel: int) -> None:  # noqa: ARG001
    """Pack so many vectors of up to three rows of a weight; to be called from kernels.

    Args:
        row, rows: first row, and number of them
        vector: first vector
        ahead: distance of the memory to be prefetched [bytes]
        panel: address of floats, written
    """


def _bytes_of_vector(x: Any) -> int:
    return LANES * (FLOAT_BYTES if isinstance(x.dtype, types.Float) else BFLOAT16_BYTES)


@overload(vectors_of)
def _vectors_of(x):  # type: ignore[no-untyped-def]
    if isinstance(x.dtype, types.Float):
        return lambda x: x.shape[1] // LANES
    return lambda x: x.shape[1] // (2 * LANES) * 2


@overload(pack_rows)
def _pack_rows(x, vectors):  # type: ignore[no-untyped-def]  # noqa: ARG001
    pack, size = _make_pack(TOKENS, not isinstance(x.dtype, types.Float)), _bytes_of_vector(x)

    def of_rows(x, vectors):  # type: ignore[no-untyped-def]
        tiles = (x.shape[0] + TOKENS - 1) // TOKENS
        packed = np.empty(tiles * vectors * TOKENS * LANES, np.float32)
        address = packed.ctypes.data
        for begin in range(0, vectors, BLOCK):
            some = min(BLOCK, vectors - begin)
            for tile in range(tiles):
                source = x.ctypes.data + tile * TOKENS * x.strides[0] + begin * size
                pack(source, x.strides[0], x.shape[0] - tile * TOKENS, some, some * size, address)
                address += some * TOKENS * VECTOR_BYTES
        return packed

    return of_rows


@overload(pack_panel)
def _pack_panel(weight, row, rows, vector, vectors, ahead, panel):  # type: ignore[no-untyped-def]  # noqa: ARG001
    pack, size = _make_pack(ROWS, not isinstance(weight.dtype, types.Float)), _bytes_of_vector(weight)

    def of_panel(weight, row, rows, vector, vectors, ahead, panel):  # type: ignore[no-untyped-def]
        source = weight.ctypes.data + row * weight.strides[0] + vector * size
        pack(source, weight.strides[0], rows, vectors, ahead, panel)

    return of_panel


@elementwise
def _finish(sums, found, x, weight, y, token, row, stop):  # type: ignore[no-untyped-def]
    """Write a tile of y: its partial sums together, then the products of the columns behind the vectors."""
    _fold(sums, found.ctypes.data)
    whole = vectors_of(x) * LANES
    for t in range(min(TOKENS, x.shape[0] - token)):
        for r in range(min(ROWS, stop - row)):
            total = found[t, r]
            for j in range(whole, x.shape[1]):
                total += widen(x[token + t, j]) * widen(weight[row + r, j])
            y[token + t, row + r] = total


@elementwise
def multiply_packed(x, packed, weight, y, start, stop, following):  # type: ignore[no-untyped-def]
    """Compute columns `start` to `stop` of y = x weight^T, as `rowwise.multiply_columns` does.

    Args:
        x: (T, in) float32 or bfloat16, as the weight
        packed: of `pack_rows`, all vectors, at least one
        following: row of the weight with which the thread will go on
    """
    vectors, tiles, groups = vectors_of(x), -(-x.shape[0] // TOKENS), -(-(stop - start) // ROWS)
    panels, found = np.empty((PANELS, BLOCK * ROWS * LANES), np.float32), np.empty((TOKENS, FOUR), np.float32)
    sums = np.empty((min(tiles, CHUNK), groups, _SUMS), np.float32)
    tile_bytes, group_bytes, panel_bytes = sums.strides[0], sums.strides[1], panels.strides[0]
    vector_bytes = LANES * weight.itemsize
    for first in range(0, tiles, CHUNK):
        last = min(first + CHUNK, tiles)
        for block in range(0, vectors, BLOCK):
            count, ahead = min(BLOCK, vectors - block), BLOCK * vector_bytes
            if block + count == vectors:
                ahead = (following - start) * weight.strides[0] - block * vector_bytes
            half = count * _HALF_BYTES
            for begin in range(0, groups, PANELS):
                end = min(begin + PANELS, groups)
                for group in range(begin, end):
                    row, right = start + group * ROWS, panels.ctypes.data + (group - begin) * panel_bytes
                    pack_panel(weight, row, min(ROWS, stop - row), block, count, ahead, right)
                for tile in range(first, last):
                    left = packed.ctypes.data + (block * tiles + tile * count) * TOKENS * VECTOR_BYTES
                    for group in range(begin, end):
                        right = panels.ctypes.data + (group - begin) * panel_bytes
                        place = sums.ctypes.data + (tile - first) * tile_bytes + group * group_bytes
                        _tile(left, right, count, block, place)
                        _tile(left + TOKENS * half, right + ROWS * half, count, block, place + group_bytes // 2)
        for tile in range(first, last):
            for group in range(groups):
                place = sums.ctypes.data + (tile - first) * tile_bytes + group * group_bytes
                _finish(place, found, x, weight, y, tile * TOKENS, start + group * ROWS, stop)
