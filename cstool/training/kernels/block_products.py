"""Products of the small matrices of attention: faster than a BLAS, which packs them first, and only of what is seen.

A tile of the result stays in registers while the terms go by, one after the other, by fused multiply-adds. So an
element is one sum in the order of its terms, whatever is computed beside it. BLAS adds as few terms in the same order,
so for up to some hundred terms the bits are usually the same as NumPy's.

Where later keys are hidden, the matrix of queries and keys is a staircase: its zeros are neither computed nor added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from cstool.foundation.compiled.intrinsics import FLOAT, INT64, Builder, Value, emitted
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import (
    FLOAT_BYTES,
    LANES,
    VECTOR,
    VECTOR_BYTES,
    Memory,
    first_lanes,
    has_instructions,
    loop,
    multiply_add,
    splat,
    transposed,
)
from cstool.training.kernels.gemm import Scratch
from cstool.training.kernels.recording import address_of, recording

Array = np.ndarray[Any, Any]
_HAS_WIDE_REGISTERS = has_instructions("avx512f")
_ROWS, _VECTORS = (4, 4) if _HAS_WIDE_REGISTERS else (6, 1)
"""of a large tile: 16 sums hide the latency of each, and leave registers for the terms (12 of half a vector without
AVX-512)"""
_NARROW_ROWS = 8 if _HAS_WIDE_REGISTERS else 6
"""of a tile of one vector"""
WIDTH = _VECTORS * LANES
"""columns of a large tile"""
FULL, SEEN_COLUMNS, SEEN_TERMS, SEEN_BY_TERMS = range(4)
"""what a staircase hides: nothing; columns of the result, as of scores; terms, as of probabilities times values; terms
before the row, as of the transposed probabilities times deltas"""


def _make_tile(rows: int, vectors: int, *, masked: bool) -> Any:
    """Return tile(a, a_row, a_term, b, b_term, out, out_row, first, last, columns, adds): `rows` rows of the result.

    Addresses and strides in bytes; b and out are contiguous in a row; `first` to `last` are the terms.
    """

    def emit(
        b: Builder,
        a: Value,
        a_row: Value,
        a_term: Value,
        right: Value,
        right_term: Value,
        out: Value,
        out_row: Value,
        first: Value,
        last: Value,
        columns: Value,
        adds: Value,
    ) -> None:
        def number(value: int) -> Value:
            return ir.Constant(INT64, value)

        masks = [first_lanes(b, b.sub(columns, number(LANES * v))) if masked else None for v in range(vectors)]
        lines = [b.add(a, b.mul(a_row, number(r))) for r in range(rows)]

        def body(k: Value, *sums: Value) -> list[Value]:
            line = Memory(b, b.add(right, b.mul(right_term, k)))
            terms = [line.load_where(VECTOR_BYTES * v, masks[v]) for v in range(vectors)]
            offset, found = b.mul(a_term, k), []
            for r in range(rows):
                factor = splat(b, Memory(b, b.add(lines[r], offset)).load(0, FLOAT))
                found += [multiply_add(b, factor, terms[v], sums[r * vectors + v]) for v in range(vectors)]
            return found

        zero = ir.Constant(VECTOR, [0.0] * LANES)
        sums = loop(b, first, last, 1, [zero] * (rows * vectors), body)
        targets = [Memory(b, b.add(out, b.mul(out_row, number(r)))) for r in range(rows)]
        with b.if_then(b.icmp_signed("!=", adds, number(0))):
            for r, target in enumerate(targets):
                for v in range(vectors):
                    before = target.load_where(VECTOR_BYTES * v, masks[v])
                    target.store_where(VECTOR_BYTES * v, masks[v], b.fadd(before, sums[r * vectors + v]))
        with b.if_then(b.icmp_signed("==", adds, number(0))):
            for r, target in enumerate(targets):
                for v in range(vectors):
                    target.store_where(VECTOR_BYTES * v, masks[v], sums[r * vectors + v])

    return emitted(emit, 11)


_large, _large_row = _make_tile(_ROWS, _VECTORS, masked=False), _make_tile(1, _VECTORS, masked=False)
_narrow, _narrow_row = _make_tile(_NARROW_ROWS, 1, masked=True), _make_tile(1, 1, masked=True)
_middle = _make_tile(_NARROW_ROWS, 2 if _HAS_WIDE_REGISTERS else 1, masked=False)
_MIDDLE_WIDTH = LANES * (2 if _HAS_WIDE_REGISTERS else 1)


def _emit_turn(b: Builder, x: Value, x_row: Value, y: Value, y_row: Value) -> None:
    """Transpose 16 x 16 numbers."""
    rows = [Memory(b, b.add(x, b.mul(x_row, ir.Constant(INT64, i)))).load(0) for i in range(LANES)]
    for i, row in enumerate(transposed(b, rows)):
        Memory(b, b.add(y, b.mul(y_row, ir.Constant(INT64, i)))).store(0, row)


_turn_block = emitted(_emit_turn, 4)


def _emit_copy(b: Builder, x: Value, y: Value) -> None:
    Memory(b, y).store(0, Memory(b, x).load(0, FLOAT))


_copy_number = emitted(_emit_copy, 2)


@elementwise
def turn(x, x_row, y, y_row, rows, columns):  # type: ignore[no-untyped-def]
    """Transpose (rows, columns) numbers, contiguous in a row; addresses and strides in bytes."""
    whole_rows, whole = rows - rows % LANES, columns - columns % LANES
    for i in range(0, whole_rows, LANES):
        for j in range(0, whole, LANES):
            _turn_block(x + i * x_row + FLOAT_BYTES * j, x_row, y + j * y_row + FLOAT_BYTES * i, y_row)
    for i in range(rows):
        for j in range(whole if i < whole_rows else 0, columns):
            _copy_number(x + i * x_row + FLOAT_BYTES * j, y + j * y_row + FLOAT_BYTES * i)


@elementwise
def _terms_of(shape, seen, row, rows, terms):  # type: ignore[no-untyped-def]
    """Return the terms, first and last + 1, that any of some rows of a result has."""
    if shape == SEEN_TERMS:
        return 0, max(0, min(terms, seen + row + rows - 1))
    if shape == SEEN_BY_TERMS:
        return min(terms, max(0, row - seen + 1)), terms
    return 0, terms


@elementwise
def _strip(a, a_row, a_term, b, b_term, out, out_row, m, terms, width, adds, shape, seen, first_row):  # type: ignore[no-untyped-def]
    """Compute some columns of the result, from a row on."""
    rows = _ROWS if width == WIDTH else _NARROW_ROWS
    i = first_row
    while i < m:
        height = rows if i + rows <= m else 1
        first, last = _terms_of(shape, seen, i, height, terms)
        x, y = a + i * a_row, out + i * out_row
        if width == WIDTH:
            if height == 1:
                _large_row(x, a_row, a_term, b, b_term, y, out_row, first, last, width, adds)
            else:
                _large(x, a_row, a_term, b, b_term, y, out_row, first, last, width, adds)
        elif height == 1:
            for j in range(0, width, LANES):
                step = FLOAT_BYTES * j
                _narrow_row(x, a_row, a_term, b + step, b_term, y + step, out_row, first, last, width - j, adds)
        elif width == _MIDDLE_WIDTH:
            _middle(x, a_row, a_term, b, b_term, y, out_row, first, last, width, adds)
        else:
            _narrow(x, a_row, a_term, b, b_term, y, out_row, first, last, width, adds)
        i += height


@elementwise
def matrix(a, a_row, a_term, b, b_term, out, out_row, sizes, adds, shape, seen):  # type: ignore[no-untyped-def]
    """Compute one product, for `_products` and for other kernels; addresses and strides in bytes."""
    m, n, terms = sizes
    j = 0
    while j < n:
        left = n - j
        width = WIDTH if left >= WIDTH else _MIDDLE_WIDTH if left >= _MIDDLE_WIDTH else min(left, LANES)
        first_row = 0
        if shape == SEEN_COLUMNS:
            first_row = min(m, max(0, j - seen + 1))
        step = FLOAT_BYTES * j
        _strip(a, a_row, a_term, b + step, b_term, out + step, out_row, m, terms, width, adds, shape, seen, first_row)
        j += width


@elementwise
def _products(a, a_steps, b, b_steps, out, out_steps, counts, sizes, turned, adds, shape, seen):  # type: ignore[no-untyped-def]
    """Compute a product for each place of three leading dimensions; steps are strides in bytes."""
    for i in range(counts[0]):
        for j in range(counts[1]):
            for k in range(counts[2]):
                x = a + i * a_steps[0] + j * a_steps[1] + k * a_steps[2]
                w = b + i * b_steps[0] + j * b_steps[1] + k * b_steps[2]
                y = out + i * out_steps[0] + j * out_steps[1] + k * out_steps[2]
                w_step = b_steps[3]
                if turned != 0:
                    # Heads of queries that share one of keys and values follow each other.
                    if k == 0 or b_steps[2] != 0:
                        turn(w, b_steps[4], turned, FLOAT_BYTES * sizes[1], sizes[1], sizes[2])
                    w, w_step = turned, FLOAT_BYTES * sizes[1]
                matrix(x, a_steps[3], a_steps[4], w, w_step, y, out_steps[3], sizes, adds, shape, seen)


def multiply(
    a: Array, b: Array, out: Array, scratch: Scratch, *, adds: bool = False, shape: int = FULL, seen: int = 0
) -> None:
    """Compute out = a @ b, or out += a @ b, for each place of three leading dimensions.

    Args:
        a: (B, G, H, M, K) float32, contiguous in rows or in columns
        b: (B, G, H or 1, K, N) float32, likewise
        out: (B, G, H, M, N) float32, contiguous in rows; where columns are hidden, those have any content
        scratch: lends (K, N)
        shape: of `FULL` and the others
        seen: columns, or terms, that row 0 of the matrix of queries and keys sees: each row sees one more. The matrix
            is the result, a, or the transposed a
    """
    b = np.broadcast_to(b, (*out.shape[:3], *b.shape[3:]))
    sizes = (*out.shape[3:], a.shape[4])
    # The kernel gets addresses: the arrays must stay, until it is through, or as long as a record has them.
    turned = scratch("products.turned", b.shape[3:]) if b.strides[4] != FLOAT_BYTES and b.shape[4] > 1 else None
    if (into := recording()) is not None:
        into.kept += [a, b, out, turned]
    _products(
        *(address_of(a), a.strides, address_of(b), b.strides, address_of(out), out.strides),
        *(out.shape[:3], sizes, 0 if turned is None else address_of(turned), int(adds), shape, seen),
    )
