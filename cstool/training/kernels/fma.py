"""Products of float32 matrices by a kernel of our own, by fused multiply-adds.

A tile of the result has its sums in registers, while the terms go by. B is packed panel by panel, so that a tile finds
its operands in a row, unless A has few rows; A stays where it is.

The order of sums depends on the number of terms alone: they are cut into as few blocks as `BLOCK_TERMS` allows, of
nearly equal size. The sum of a block begins with zero and takes its terms one by one. Then blocks are added to the
earlier content (the bias, or the old sums), in their order. So an element has the same bits in any part of the rows
and columns, on any thread.

Source: Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, for blocks and panels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from cstool.foundation.compiled.intrinsics import FLOAT, INT64, Builder, Value, emitted
from cstool.training.kernels._jit import elementwise, inlined
from cstool.training.kernels._vectors import (
    FLOAT_BYTES,
    LANES,
    VECTOR,
    VECTOR_BYTES,
    Memory,
    emit_prefetch,
    first_lanes,
    has_instructions,
    loop,
    multiply_add,
    splat,
    transposed,
)
from cstool.training.kernels.gemm import Array, WorkSpace, addresses, distances
from cstool.training.kernels.recording import address_of, recording

BLOCK_TERMS = 512
"""most terms of a sum that are added up in registers, before they meet others"""
_HAS_WIDE_REGISTERS = has_instructions("avx512f")
TILE_ROWS, TILE_VECTORS = (6, 4) if _HAS_WIDE_REGISTERS else (6, 1)
"""24 sums hide the time of each, and leave registers for the operands (12 of half a vector without AVX-512)"""
TILE_COLUMNS = TILE_VECTORS * LANES
NARROW_ROWS = 12 if _HAS_WIDE_REGISTERS else 6
"""of a tile of one vector"""
LEAST_PACKED_ROWS = 64
"""rows of A from which a panel of B that lies by rows is packed: of fewer the copy takes longer than it saves"""
_ROW_BYTES = TILE_COLUMNS * FLOAT_BYTES
"""of a panel"""


def _number(value: int) -> Value:
    return ir.Constant(INT64, value)


def _make_tile(height: int, vectors: int, *, is_narrow: bool) -> Any:
    """Return tile(a, a_row, a_term, b, b_term, terms, begun, begun_row, is_begun, out, out_row, rows, columns).

    Addresses, and distances in bytes. It writes `rows` x `columns` of a tile of A B, and adds the floats at `begun`, if
    there are any. Only a narrow tile, of one vector, may have fewer columns.
    """

    def emit(
        b: Builder,
        a: Value,
        a_row: Value,
        a_term: Value,
        right: Value,
        right_term: Value,
        terms: Value,
        begun: Value,
        begun_row: Value,
        is_begun: Value,
        out: Value,
        out_row: Value,
        rows: Value,
        columns: Value,
    ) -> None:
        last = b.sub(rows, _number(1))

        def line(address: Value, stride: Value, r: int) -> Memory:
            # Of missing rows the last one is read again.
            at = b.select(b.icmp_signed("<", _number(r), last), _number(r), last)
            return Memory(b, b.add(address, b.mul(stride, at)))

        of_columns = first_lanes(b, columns) if is_narrow else None
        lines = [line(a, a_row, r) for r in range(height)]
        targets, befores = ([line(*place, r) for r in range(height)] for place in ((out, out_row), (begun, begun_row)))
        for target in targets:
            for v in range(vectors):
                emit_prefetch(b, target.at(_number(v * VECTOR_BYTES)).address)

        def body(k: Value, *sums: Value) -> Sequence[Value]:
            place = Memory(b, b.add(right, b.mul(right_term, k)))
            loaded = [place.load_where(v * VECTOR_BYTES, of_columns) for v in range(vectors)]
            offset, found = b.mul(a_term, k), []
            for r in range(height):
                factor = splat(b, lines[r].at(offset).load(0, FLOAT))
                found += [multiply_add(b, factor, loaded[v], sums[r * vectors + v]) for v in range(vectors)]
            return found

        zeros = [ir.Constant(VECTOR, [0.0] * LANES)] * (height * vectors)
        sums = loop(b, _number(0), terms, 1, zeros, body)

        def write(adds: bool, mask_of: Callable[[int], Value | None]) -> None:
            for r in range(height):
                mask = mask_of(r)
                for v in range(vectors):
                    total = sums[r * vectors + v]
                    if adds:
                        total = b.fadd(total, befores[r].load_where(v * VECTOR_BYTES, mask))
                    targets[r].store_where(v * VECTOR_BYTES, mask, total)

        def some(r: int) -> Value:
            mask = first_lanes(b, columns) if is_narrow else first_lanes(b, _number(LANES))
            return b.select(b.icmp_signed("<", _number(r), rows), mask, ir.Constant(mask.type, None))

        is_whole = b.icmp_signed(">=", rows, _number(height))
        if is_narrow:
            is_whole = b.and_(is_whole, b.icmp_signed(">=", columns, _number(LANES)))
        with b.if_else(b.icmp_signed("!=", is_begun, _number(0))) as branches:
            for adds, branch in zip((True, False), branches, strict=True):
                with branch, b.if_else(is_whole) as (whole, part):
                    with whole:
                        write(adds, lambda _: None)
                    with part:
                        write(adds, some)

    return emitted(emit, 13)


_wide, _narrow = _make_tile(TILE_ROWS, TILE_VECTORS, is_narrow=False), _make_tile(NARROW_ROWS, 1, is_narrow=True)


def _emit_turn(
    b: Builder, source: Value, stride: Value, count: Value, terms: Value, target: Value, step: Value
) -> None:
    """Pack 16 columns of an operand that lies along its terms: it turns 16 x 16 numbers.

    `count` lines, 1 at least, begin at the address `source`, `stride` bytes apart, with `terms` numbers each. A term
    becomes a vector, `step` bytes behind the one before; up to 15 terms of zeros follow the last.
    """
    last = b.sub(count, _number(1))

    def line(number: int) -> Memory:
        at = b.select(b.icmp_signed("<", _number(number), last), _number(number), last)
        return Memory(b, b.add(source, b.mul(at, stride)))

    sources = [line(number) for number in range(LANES)]

    def body(i: Value) -> Sequence[Value]:
        mask, offset = first_lanes(b, b.sub(terms, i)), b.mul(i, _number(FLOAT_BYTES))
        out = Memory(b, b.add(target, b.mul(i, step)))
        for term, vector in enumerate(transposed(b, [memory.load_where(offset, mask) for memory in sources])):
            out.at(b.mul(step, _number(term))).store(0, vector)
        return []

    loop(b, _number(0), terms, LANES, [], body)


def _emit_copy(b: Builder, source: Value, stride: Value, terms: Value, target: Value) -> None:
    """Pack a whole panel of an operand with contiguous rows."""

    def body(i: Value) -> Sequence[Value]:
        place = Memory(b, b.add(source, b.mul(i, stride)))
        panel = Memory(b, b.add(target, b.mul(i, _number(_ROW_BYTES))))
        panel.store_tile([place.load(v * VECTOR_BYTES) for v in range(TILE_VECTORS)])
        return []

    loop(b, _number(0), terms, 1, [], body)


_turn, _copy = emitted(_emit_turn, 6), emitted(_emit_copy, 4)


class Part(NamedTuple):
    """Some rows of matrices that are sorted by a number of each row, and known only when a product is computed."""

    choices: Array
    """(rows,) int32, the numbers of all rows, in any order"""
    number: int
    """of the rows that count; below 0 for all"""
    is_of_terms: bool
    """whether the rows are terms of the sums, and else rows of the result"""
    found: Array
    """(1,) int64, where the count of the rows is written"""


ALL = Part(np.zeros(0, np.int32), -1, False, np.zeros(1, np.int64))  # noqa: FBT003


class _Form(NamedTuple):
    """Of products out = A B: sizes, and distances in bytes.

    Args:
        terms: columns of A, rows of B
        a_row, a_term, b_term, b_column: of each operand one is the size of an element
        bias: address; 0 for none
        adds: whether products are added to the content of `out`
    """

    rows: int
    columns: int
    terms: int
    a_row: int
    a_term: int
    b_term: int
    b_column: int
    out_row: int
    bias: int
    adds: bool


@elementwise
def _panel(a, form, b, b_term, terms, begun, begun_row, is_begun, out, columns):  # type: ignore[no-untyped-def]
    """Compute some columns of the result, for a block of terms; see `_make_tile`."""
    steps, rows = (form.a_row, form.a_term), form.rows
    if columns == TILE_COLUMNS:
        for r in range(0, rows, TILE_ROWS):
            before, target = (begun + r * begun_row, begun_row, is_begun), (out + r * form.out_row, form.out_row)
            _wide(a + r * form.a_row, *steps, b, b_term, terms, *before, *target, rows - r, columns)
        return
    for c in range(0, columns, LANES):
        step = c * FLOAT_BYTES
        for r in range(0, rows, NARROW_ROWS):
            before = begun + r * begun_row + step, begun_row, is_begun
            target = out + r * form.out_row + step, form.out_row
            _narrow(a + r * form.a_row, *steps, b + step, b_term, terms, *before, *target, rows - r, columns - c)


@inlined
def rows_of(choices, number):  # type: ignore[no-untyped-def]
    """Return the first of the rows of a number, and their count; see `Part`."""
    first, count = 0, 0
    for i in range(choices.shape[0]):
        first += choices[i] < number
        count += choices[i] == number
    return first, count


@elementwise
def _multiply(places, whole, memory, choices, number, is_of_terms, found):  # type: ignore[no-untyped-def]
    """Compute several products of one form, none of them empty; or a part of a product, perhaps nothing.

    Args:
        places: (3, n) int64, the addresses of A, B and out
        whole: a `_Form`
        memory: address of (`BLOCK_TERMS` + 16, `TILE_COLUMNS`) float32, work space
        choices, number, is_of_terms, found: see `Part`
    """
    rows, summed, on_a, on_b, on_out = whole.rows, whole.terms, 0, 0, 0
    if number >= 0:
        first, count = rows_of(choices, number)
        found[0] = count
        if count == 0:
            return
        if is_of_terms:
            summed, on_a, on_b = count, first * whole.a_term, first * whole.b_term
        else:
            rows, on_a, on_out = count, first * whole.a_row, first * whole.out_row
    strides = whole.a_row, whole.a_term, whole.b_term, whole.b_column, whole.out_row
    form = _Form(rows, whole.columns, summed, *strides, whole.bias, whole.adds)
    turns, copies = form.b_column != FLOAT_BYTES, form.rows >= LEAST_PACKED_ROWS
    blocks = max(1, -(-form.terms // BLOCK_TERMS))
    for place in range(places.shape[1]):
        a, b, out = places[0, place] + on_a, places[1, place] + on_b, places[2, place] + on_out
        for block in range(blocks):
            k = form.terms * block // blocks
            terms = form.terms * (block + 1) // blocks - k
            for c in range(0, form.columns, TILE_COLUMNS):
                columns, target = min(TILE_COLUMNS, form.columns - c), out + c * FLOAT_BYTES
                panel, apart = b + k * form.b_term + c * form.b_column, form.b_term
                if turns:
                    for j in range(0, columns, LANES):
                        lines = panel + j * form.b_column, form.b_column, columns - j
                        _turn(*lines, terms, memory + j * FLOAT_BYTES, _ROW_BYTES)
                    panel, apart = memory, _ROW_BYTES
                elif copies and columns == TILE_COLUMNS:
                    _copy(panel, apart, terms, memory)
                    panel, apart = memory, _ROW_BYTES
                begun, begun_row, is_begun = target, form.out_row, block > 0 or form.adds
                if block == 0 and form.bias:
                    begun, begun_row, is_begun = form.bias + c * FLOAT_BYTES, 0, True
                _panel(a + k * form.a_term, form, panel, apart, terms, begun, begun_row, is_begun, target, columns)


class FmaGemm:
    """See `Gemm`. Each thread, and each recording, keeps 135 KB."""

    name, is_recordable = "fma", True
    operands = np.dtype(np.float32)
    terms_added_in_place = BLOCK_TERMS

    def __init__(self) -> None:
        self._memory = WorkSpace()

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""
        self._multiply(a, b, out, bias, adds=False)

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:  # noqa: ARG002
        """See `Gemm.multiply_add`."""
        self._multiply(a, b, out, None, adds=True)

    def multiply_part(
        self, a: Array, b: Array, out: Array, part: Part, bias: Array | None = None, *, adds: bool = False
    ) -> None:
        """Compute the product of some rows, with the bits of a product of these alone; of none nothing is written.

        Args:
            a, b, out, bias: matrices with all rows, see `Gemm.multiply`; rows of `out` are contiguous
            adds: whether the product is added to `out`
        """
        assert out.strides[-1] == FLOAT_BYTES, "else a and b would change places"
        self._multiply(a, b, out, bias, adds=adds, part=part)

    def _multiply(self, a: Array, b: Array, out: Array, bias: Array | None, *, adds: bool, part: Part = ALL) -> None:
        if not out.size:
            return
        if out.strides[-1] != FLOAT_BYTES and out.shape[-1] > 1:
            assert bias is None, "as `Gemm.multiply` says"
            a, b, out = (x.swapaxes(-1, -2) for x in (b, a, out))
        (rows, columns), terms = out.shape[-2:], a.shape[-1]
        strides = *distances(a), *distances(b), out.strides[-2]
        form = _Form(rows, columns, terms, *strides, 0 if bias is None else address_of(bias), adds)
        places = np.array([addresses(x, out.shape[:-2]) for x in (a, b, out)], np.int64)
        size = ((BLOCK_TERMS + LANES) * TILE_COLUMNS,)
        if (into := recording()) is None:
            memory = self._memory.lend("panel", size)
        else:
            memory = into.prepared.setdefault(self, WorkSpace()).lend("panel", size)
            into.kept += [a, b, out, bias]
        _multiply(places, form, address_of(memory), *part)
