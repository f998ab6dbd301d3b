"""Products of bfloat16 matrices by a kernel of our own, for CPUs with AVX512_BF16: one instruction has 32 products.

`vdpbf16ps` adds two products to each of 16 sums in float32. Both operands are packed so that it finds its operands in
a row: pairs of numbers that follow each other along k, of A for 12 rows, of B for 32 columns. A tile of 12 rows and 32
columns has its sums in 24 registers. A block of A stays in the second cache while panels of B pass through the first.

The order of sums, which depends on k alone: k is cut into blocks of `BLOCK_TERMS`. The sum of a block begins with zero
and takes its terms two by two, of each two the second first; every product is exact, and every addition is rounded to
the nearest, of two to the even one. Then blocks are added to the earlier content (the bias, or the old sums), in
their order. So an element has the same bits in any part of the rows and columns, on any thread.

The instruction takes numbers below the least normal one (1.2e-38) for zero, and makes zeros of them; so does the one
that rounds sums to bfloat16. NaN and infinity go their usual ways.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS and VCVTNEPS2BF16; for blocks
and panels Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir

from cstool.foundation.compiled.intrinsics import FLOAT, INT16, INT32, INT64, Builder, Value, emitted
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import (
    BFLOAT16_BYTES,
    FLOAT_BYTES,
    LANES,
    LINE_BYTES,
    VECTOR,
    VECTOR_BYTES,
    Memory,
    emit_prefetch,
    first_lanes,
    has_instructions,
    loop,
    multiply_add,
    shuffle,
    splat,
    transposed,
)
from cstool.training.kernels.bfloat16 import BFLOAT16, narrowed
from cstool.training.kernels.gemm import Array, WorkSpace, addresses, distances
from cstool.training.kernels.recording import address_of, needs_interpreter, recording

FEATURE = "avx512bf16"
"""as LLVM names it"""
BLOCK_TERMS = 768
"""terms of a sum that are added up in registers, before they meet others"""
TILE_ROWS, TILE_VECTORS = 12, 2
TILE_COLUMNS = TILE_VECTORS * LANES
"""24 sums hide the time of each, and leave registers for the operands"""
BLOCK_ROWS = 43 * TILE_ROWS
"""most rows of A that are packed at a time: with `BLOCK_TERMS` 0.8 MB, a bit more than the 512 tokens of many grains"""
SUM_COLUMNS = 16 * TILE_COLUMNS
"""of a block of sums that wait in work space, where they come to be bfloat16"""

_PAIR_BYTES = 2 * BFLOAT16_BYTES
_A_BYTES, _B_BYTES = TILE_ROWS * _PAIR_BYTES, TILE_COLUMNS * _PAIR_BYTES
"""of a pair along k, in a panel"""
_A_PANEL_BYTES = BLOCK_TERMS // 2 * _A_BYTES
_SUM_BYTES = SUM_COLUMNS * FLOAT_BYTES
"""of a row"""
_BITS = ir.VectorType(INT16, 2 * LANES)

# Instructions by their names, as LLVM's own functions for them have other types from version to version.
binding.initialize_native_asmparser()
_ADD_PRODUCTS = ir.InlineAsm(ir.FunctionType(VECTOR, [VECTOR] * 3), "vdpbf16ps $3, $2, $0", "=v,0,v,v")
_ROUND = ir.InlineAsm(ir.FunctionType(ir.VectorType(INT16, LANES), [VECTOR]), "vcvtneps2bf16 $1, $0", "=v,v")


def _number(value: int) -> Value:
    return ir.Constant(INT64, value)


def _make_tile(rounds: bool) -> Any:
    """Return tile(a, b, pairs, begun, begun_row, is_begun, out, out_row, rows, columns), which writes a tile of A B.

    Addresses, and distances of rows in bytes. It writes `rows` x `columns` of a tile, bfloat16 if it
    rounds, and adds the floats at `begun`, if there are any.
    """

    def emit(
        b: Builder,
        a_panel: Value,
        b_panel: Value,
        pairs: Value,
        begun: Value,
        begun_row: Value,
        is_begun: Value,
        out: Value,
        out_row: Value,
        rows: Value,
        columns: Value,
    ) -> None:
        def lines(address: Value, stride: Value) -> list[Memory]:
            return [Memory(b, b.add(address, b.mul(stride, _number(r)))) for r in range(TILE_ROWS)]

        def body(i: Value, *sums: Value) -> Sequence[Value]:
            left = Memory(b, b.add(a_panel, b.mul(i, _number(_A_BYTES))))
            right = Memory(b, b.add(b_panel, b.mul(i, _number(_B_BYTES)))).load_tile(TILE_VECTORS)
            found = []
            for r in range(TILE_ROWS):
                pair = splat(b, left.load(r * _PAIR_BYTES, FLOAT))
                for v in range(TILE_VECTORS):
                    found.append(b.call(_ADD_PRODUCTS, [sums[r * TILE_VECTORS + v], pair, right[v]]))
            return found

        targets, vector_bytes = lines(out, out_row), LANES * (BFLOAT16_BYTES if rounds else FLOAT_BYTES)
        # The memory of the result is asked for before it is computed.
        for target in targets:
            for offset in range(0, TILE_VECTORS * vector_bytes, LINE_BYTES):
                emit_prefetch(b, target.at(_number(offset)).address)
        zeros = [ir.Constant(VECTOR, [0.0] * LANES)] * (TILE_ROWS * TILE_VECTORS)
        sums = loop(b, _number(0), pairs, 1, zeros, body)
        befores = lines(begun, begun_row)

        def write(adds: bool, masks_of: Callable[[int], Sequence[Value | None]]) -> None:
            for r in range(TILE_ROWS):
                for v, mask in enumerate(masks_of(r)):
                    total = sums[r * TILE_VECTORS + v]
                    if adds:
                        total = b.fadd(total, befores[r].load_where(v * VECTOR_BYTES, mask))
                    targets[r].store_where(v * vector_bytes, mask, b.call(_ROUND, [total]) if rounds else total)

        def some(r: int) -> Sequence[Value | None]:
            is_there = b.icmp_signed("<", _number(r), rows)
            return [b.select(is_there, mask, ir.Constant(mask.type, None)) for mask in of_columns]

        of_columns = [first_lanes(b, b.sub(columns, _number(v * LANES))) for v in range(TILE_VECTORS)]
        has_rows = b.icmp_signed(">=", rows, _number(TILE_ROWS))
        is_whole = b.and_(has_rows, b.icmp_signed(">=", columns, _number(TILE_COLUMNS)))
        with b.if_else(b.icmp_signed("!=", is_begun, _number(0))) as branches:
            for adds, branch in zip((True, False), branches, strict=True):
                with branch, b.if_else(is_whole) as (whole, part):
                    with whole:
                        write(adds, lambda _: [None] * TILE_VECTORS)
                    with part:
                        write(adds, some)

    return emitted(emit, 10)


_tile: Any = _make_tile(rounds=False)
_tile_rounded: Any = _make_tile(rounds=True)


def _make_pack_turned(lines: int, step_bytes: int) -> Any:
    """Return pack(source, stride, count, terms, target), for an operand that lies along k: it turns 16 x 16 pairs.

    `count` lines, 1 at least, begin at the address `source`, `stride` bytes apart, with `terms` numbers each; the first
    `lines` of them are packed. A pair of terms becomes 16 lanes (missing lines have any content), `step_bytes`
    behind the pair before. Up to 15 pairs of zeros follow the last.
    """

    def emit(b: Builder, source: Value, stride: Value, count: Value, terms: Value, target: Value) -> None:
        def line(number: int) -> Memory:
            last = b.sub(count, _number(1))
            at = b.select(b.icmp_signed("<", _number(number), last), _number(number), last)
            return Memory(b, b.add(source, b.mul(at, stride)))

        sources = [line(number) for number in range(lines)]

        def body(i: Value) -> Sequence[Value]:
            mask, offset = first_lanes(b, b.sub(terms, i), 2 * LANES), b.mul(i, _number(BFLOAT16_BYTES))
            loaded = [b.bitcast(memory.load_where(offset, mask, _BITS), VECTOR) for memory in sources]
            out = Memory(b, b.add(target, b.mul(i, _number(step_bytes // 2))))
            for pair, vector in enumerate(transposed(b, loaded)):
                out.store(pair * step_bytes, vector)
            return []

        loop(b, _number(0), terms, 2 * LANES, [], body)

    return emitted(emit, 5)


def _make_pack_paired(lanes: int, step_bytes: int) -> Any:
    """Return pack(source, stride, count, terms, target), for an operand whose terms lie apart: it makes pairs of them.

    `terms` rows of `count` numbers begin at the address `source`, `stride` bytes apart; the first `lanes` numbers of
    each are packed. A pair of rows becomes `lanes` lanes (missing numbers are zero), `step_bytes` behind the pair
    before.
    """
    bits = ir.VectorType(INT16, lanes)

    def emit(b: Builder, source: Value, stride: Value, count: Value, terms: Value, target: Value) -> None:
        mask = first_lanes(b, count, lanes)

        def body(i: Value) -> Sequence[Value]:
            place = Memory(b, b.add(source, b.mul(i, stride)))
            # Of an odd number of terms the last has zeros beside it.
            has_second = b.icmp_signed("<", b.add(i, _number(1)), terms)
            second = b.select(has_second, mask, ir.Constant(mask.type, None))
            both = place.load_where(0, mask, bits), place.at(stride).load_where(0, second, bits)
            out = Memory(b, b.add(target, b.mul(i, _number(step_bytes // 2))))
            for first in range(0, lanes, LANES):
                numbers = [number for lane in range(first, first + LANES) for number in (lane, lanes + lane)]
                out.store(first * _PAIR_BYTES, shuffle(b, *both, numbers), align=_PAIR_BYTES)
            return []

        loop(b, _number(0), terms, 2, [], body)

    return emitted(emit, 5)


_turn_a: Any = _make_pack_turned(TILE_ROWS, _A_BYTES)
_turn_b: Any = _make_pack_turned(LANES, _B_BYTES)
_pair_a: Any = _make_pack_paired(LANES, _A_BYTES)
_pair_b: Any = _make_pack_paired(TILE_COLUMNS, _B_BYTES)


class _Form(NamedTuple):
    """Of products out = A B: sizes, and distances in bytes.

    Args:
        terms: columns of A, rows of B
        a_row, a_term, b_term, b_column: of each operand one is the size of an element
        bias: address; 0 for none
        adds: whether products are added to the content of `out`
        rounds: whether `out` is bfloat16
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
    rounds: bool


@elementwise
def _pack_a(a, form, rows, terms, memory):  # type: ignore[no-untyped-def]
    # The last lanes of a vector reach into the next pair, which is written after it.
    for r in range(0, rows, TILE_ROWS):
        panel = memory + r // TILE_ROWS * _A_PANEL_BYTES
        if form.a_term == BFLOAT16_BYTES:
            _turn_a(a + r * form.a_row, form.a_row, rows - r, terms, panel)
        else:
            _pair_a(a + r * form.a_row, form.a_term, rows - r, terms, panel)


@elementwise
def _pack_b(b, form, columns, terms, memory):  # type: ignore[no-untyped-def]
    if form.b_column == BFLOAT16_BYTES:
        _pair_b(b, form.b_term, columns, terms, memory)
    else:
        for c in range(0, min(columns, TILE_COLUMNS), LANES):
            _turn_b(b + c * form.b_column, form.b_column, columns - c, terms, memory + c * _PAIR_BYTES)


@elementwise
def _multiply(places, form, a_memory, b_memory, sums):  # type: ignore[no-untyped-def]
    """Compute several products of one form, none of them empty.

    Args:
        places: (3, n) int64, the addresses of A, B and out
        form: a `_Form`
        a_memory, b_memory: addresses of work space
        sums: address of (`BLOCK_ROWS`, `SUM_COLUMNS`) float32, for sums of several blocks that end as bfloat16
    """
    waits = form.rounds and form.terms > BLOCK_TERMS
    width = SUM_COLUMNS if waits else form.columns
    # Blocks of rows are about equal: a last one of a few would pack all of B for these.
    blocks = -(-form.rows // BLOCK_ROWS)
    height = -(-form.rows // (blocks * TILE_ROWS)) * TILE_ROWS
    for place in range(places.shape[1]):
        a, b, out = places[0, place], places[1, place], places[2, place]
        for i in range(0, form.rows, height):
            rows = min(height, form.rows - i)
            for j in range(0, form.columns, width):
                end = min(j + width, form.columns)
                for k in range(0, max(form.terms, 1), BLOCK_TERMS):
                    terms = min(BLOCK_TERMS, form.terms - k)
                    rounds = form.rounds and k + terms == form.terms
                    _pack_a(a + i * form.a_row + k * form.a_term, form, rows, terms, a_memory)
                    for c in range(j, end, TILE_COLUMNS):
                        _pack_b(b + k * form.b_term + c * form.b_column, form, end - c, terms, b_memory)
                        for r in range(0, rows, TILE_ROWS):
                            panel = a_memory + r // TILE_ROWS * _A_PANEL_BYTES, b_memory, (terms + 1) // 2
                            size = rows - r, end - c
                            target = out + (i + r) * form.out_row + c * (BFLOAT16_BYTES if form.rounds else FLOAT_BYTES)
                            total, total_row = target, form.out_row
                            if waits:
                                total, total_row = sums + r * _SUM_BYTES + (c - j) * FLOAT_BYTES, _SUM_BYTES
                            begun, begun_row, is_begun = total, total_row, k > 0 or form.adds
                            if k == 0 and form.bias:
                                begun, begun_row, is_begun = form.bias + c * FLOAT_BYTES, 0, True
                            if rounds:
                                _tile_rounded(*panel, begun, begun_row, is_begun, target, form.out_row, *size)
                            else:
                                _tile(*panel, begun, begun_row, is_begun, total, total_row, *size)


def add_products(b: Builder, left: Value, right: Value, total: Value) -> Value:
    """Add to each of 16 floats the products of two pairs, the second first; vectors of 32 bfloat16 come as floats.

    Without the instruction the bits are the same, but for numbers below the least normal one.
    """
    if missing_instructions() is None:
        return b.call(_ADD_PRODUCTS, [total, left, right])
    words = ir.VectorType(INT32, LANES)

    def second(pairs: Value) -> Value:
        upper = ir.Constant(words, [0xFFFF0000] * LANES)
        return b.bitcast(b.and_(b.bitcast(pairs, words), upper), VECTOR)

    def first(pairs: Value) -> Value:
        return b.bitcast(b.shl(b.bitcast(pairs, words), ir.Constant(words, [16] * LANES)), VECTOR)

    total = multiply_add(b, second(left), second(right), total)
    return multiply_add(b, first(left), first(right), total)


def missing_instructions() -> str | None:
    """Return the reason that the kernel cannot run here; None where it can."""
    if not binding.get_host_cpu_features().get(FEATURE):
        return "this CPU has no AVX512_BF16"
    if not has_instructions(FEATURE):
        return "Numba is told to compile for a CPU without AVX512_BF16"
    return None


class VdpGemm:
    """See `Gemm`. It needs a CPU for which `missing_instructions` finds nothing; each thread keeps 0.8 to 1.9 MB."""

    name, is_recordable = "vdpbf16ps", True
    operands = BFLOAT16
    terms_added_in_place = BLOCK_TERMS

    def __init__(self) -> None:
        self._memory = WorkSpace()

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""
        if _has_rows(out):
            self._multiply(a, b, out, bias, adds=False)
            return
        # No kernel asks for a transposed result.
        needs_interpreter()
        total = self._memory.lend("out", out.shape)
        self._multiply(a, b, total, bias, adds=False)
        out[...] = narrowed(total) if out.dtype == BFLOAT16 else total

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:  # noqa: ARG002
        """See `Gemm.multiply_add`."""
        if not _has_rows(out):
            a, b, out = (x.swapaxes(-1, -2) for x in (b, a, out))
        self._multiply(a, b, out, None, adds=True)

    def _multiply(self, a: Array, b: Array, out: Array, bias: Array | None, *, adds: bool) -> None:
        if not out.size:
            return
        assert _has_rows(out), "as `Gemm.multiply` says"
        assert bias is None or bias.flags.c_contiguous
        (rows, columns), terms, rounds = out.shape[-2:], a.shape[-1], out.dtype == BFLOAT16
        strides = *distances(a), *distances(b), out.strides[-2]
        form = _Form(rows, columns, terms, *strides, 0 if bias is None else address_of(bias), adds, rounds)
        places = np.array([addresses(x, out.shape[:-2]) for x in (a, b, out)], np.int64)
        waits = rounds and terms > BLOCK_TERMS
        # Behind the last panel of A a vector may end.
        sizes = {
            "a": BLOCK_ROWS * BLOCK_TERMS // 2 + LANES,
            "b": TILE_COLUMNS * BLOCK_TERMS // 2,
            "sums": BLOCK_ROWS * SUM_COLUMNS if waits else 0,
        }
        space = self._memory
        if (into := recording()) is not None:
            space = into.prepared.setdefault(self, WorkSpace())
        memory = [space.lend(name, (size,)) for name, size in sizes.items()]
        if into is not None:
            into.kept += [a, b, out, bias, memory]
        _multiply(places, form, *map(address_of, memory))


def _has_rows(out: Array) -> bool:
    return out.strides[-1] == out.itemsize or out.shape[-1] < 2
