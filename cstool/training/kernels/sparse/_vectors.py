"""The inner loops of the sparse kernels, written in LLVM's own vectors of 16 floats (see `kernels._vectors`).

A tile holds for every feature `vectors` times 16 tokens, from an address on that is a multiple of 64 bytes: as float32,
or as bfloat16, two vectors in one, whose lanes have 16 bits of the second above 16 bits of the first. So either is
widened by one operation.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from cstool.foundation.compiled.intrinsics import BYTE, FLOAT, INT32, INT64, Builder, Value, emitted
from cstool.training.kernels._vectors import (
    BFLOAT16_BYTES,
    CONTRACT,
    FLOAT_BYTES,
    FOUR,
    LANES,
    QUAD,
    VECTOR,
    VECTOR_BYTES,
    Memory,
    emit_prefetch,
    loop,
    multiply_add,
    splat,
    sums_of_four,
    transposed,
)

UNROLLED = 16
"""non-zeros of a row whose code follows one another without a branch; a power of two"""
FOURS_UNROLLED = UNROLLED // FOUR
"""fours of non-zeros, whose gradients are summed up together, likewise"""
_BITS = ir.VectorType(INT32, LANES)
_UPPER = 0xFFFF0000
"""half of the bits of a lane"""


def _unrolled(
    b: Builder, count: Value, turns: int, carried: Sequence[Value], body: Callable[..., Sequence[Value]]
) -> list[Value]:
    """Emit `for i in range(count)` as `loop` does, `turns` turns at a time, then a jump into the code of the rest.

    Where counts repeat, a CPU foresees that jump, and a short row has no other branch.
    """

    def several(i: Value, *values: Value) -> Sequence[Value]:
        for j in range(turns):
            values = tuple(body(b.add(i, ir.Constant(INT64, j)), *values))
        return values

    whole = b.and_(count, ir.Constant(INT64, -turns))
    values = loop(b, ir.Constant(INT64, 0), whole, turns, carried, several)
    rest = b.sub(count, whole)
    count = _opaque(b, count)
    before = b.block
    steps = {left: b.function.append_basic_block("step") for left in range(turns - 1, 0, -1)}
    after = b.function.append_basic_block("after")
    jump = b.switch(rest, after)
    sources = [(before, values)]
    for left, step in steps.items():
        jump.add_case(ir.Constant(INT64, left), step)
        b.position_at_end(step)
        joined = _joined(b, sources)
        following = list(body(b.sub(count, ir.Constant(INT64, left)), *joined))
        sources = [(before, values), (b.block, following)]
        b.branch(steps.get(left - 1, after))
    b.position_at_end(after)
    return _joined(b, sources)


def _joined(b: Builder, sources: Sequence[tuple[Any, Sequence[Value]]]) -> list[Value]:
    """Values at the beginning of a block, by the blocks that lead there."""
    joined = [b.phi(value.type) for value in sources[0][1]]
    for block, values in sources:
        for phi, value in zip(joined, values, strict=True):
            phi.add_incoming(value, block)
    return joined


def _opaque(b: Builder, number: Value) -> Value:
    """Return a 64-bit number hidden from LLVM, which computes it once and does not fold it into addresses.

    A CPU splits a multiplication whose operand lies at the sum of two registers into two operations.
    """
    return b.asm(ir.FunctionType(INT64, [INT64]), "", "=r,0", [number], False)


def _load_tile(b: Builder, tiles: Value, columns: Value, position: Value, vectors: int, narrow: bool) -> list[Value]:
    """Return the tile of the feature that a byte of `columns` names, as vectors of floats."""
    column = b.load(b.inttoptr(b.add(columns, position), BYTE.as_pointer()))
    size = ir.Constant(INT64, vectors * VECTOR_BYTES // (2 if narrow else 1))
    tile = Memory(b, _opaque(b, b.add(tiles, b.mul(b.zext(column, INT64), size))))
    return _widened(b, tile.load_tile(vectors // 2)) if narrow else tile.load_tile(vectors)


def _widened(b: Builder, pairs: Sequence[Value]) -> list[Value]:
    """Return the two vectors of floats that are in each one."""
    half, upper = (ir.Constant(_BITS, [ir.Constant(INT32, number)] * LANES) for number in (16, _UPPER))
    found = []
    for pair in pairs:
        bits = b.bitcast(pair, _BITS)
        found += [b.bitcast(number, VECTOR) for number in (b.shl(bits, half), b.and_(bits, upper))]
    return found


def make_gather_row(vectors: int, *, begins: bool) -> Any:
    """Return gather(columns, at, count, x, y, start, values): y += value * x[column] over the non-zeros of a row.

    The row's values begin at `at`. y, the tile of one output, stays in registers.

    Args:
        vectors: of a tile
        begins: y begins with the number at `start` in place of its content
    """

    def emit(
        b: Builder, columns: Value, at: Value, count: Value, x: Value, y: Value, start: Value, narrow: bool, tile: bool
    ) -> None:
        output, weights = Memory(b, y), Memory(b, at)
        sums = [splat(b, Memory(b, start).load(0, FLOAT))] * vectors if begins else output.load_tile(vectors)

        def body(i: Value, *sums: Value) -> Sequence[Value]:
            weight = splat(b, _load_number(b, weights, i, narrow))
            tokens = _load_tile(b, x, columns, i, vectors, tile)
            return [multiply_add(b, weight, t, total) for t, total in zip(tokens, sums, strict=True)]

        output.store_tile(_unrolled(b, count, UNROLLED, sums, body))

    return emitted(emit, 6, arrays=2)


def _load_number(b: Builder, numbers: Memory, i: Value, narrow: bool) -> Value:
    if narrow:
        return numbers.load_bfloat16(b.mul(i, ir.Constant(INT64, BFLOAT16_BYTES)), None)
    return numbers.load(b.mul(i, ir.Constant(INT64, FLOAT_BYTES)), FLOAT)


def make_dot_row(vectors: int) -> Any:
    """Return dot(columns, at, count, x, delta_y, _, gradients): gradient += sum over tokens of x[column] * delta_y.

    Four non-zeros at a time: their four vectors of partial sums are added up across lanes together.
    """

    def emit(
        b: Builder, columns: Value, at: Value, count: Value, x: Value, delta_y: Value, _: Value, *narrow: bool
    ) -> None:
        sums, deltas = Memory(b, at), Memory(b, delta_y).load_tile(vectors)

        def dot(i: Value) -> Value:
            tokens = _load_tile(b, x, columns, i, vectors, narrow[-1])
            total = b.fmul(tokens[0], deltas[0], flags=CONTRACT)
            for t, delta in zip(tokens[1:], deltas[1:], strict=True):
                total = multiply_add(b, t, delta, total)
            return total

        def add(first: Value, number: int) -> None:
            """Add to `number` gradients, four at the most."""
            dots = [dot(b.add(first, ir.Constant(INT64, j))) for j in range(number)]
            totals = sums_of_four(b, [dots[j % number] for j in range(FOUR)])
            here = sums.at(b.mul(first, ir.Constant(INT64, FLOAT_BYTES)))
            if number == FOUR:
                here.store(0, b.fadd(here.load(0, QUAD), totals))
                return
            for j in range(number):
                total = b.extract_element(totals, ir.Constant(INT32, j))
                here.store(j * FLOAT_BYTES, b.fadd(here.load(j * FLOAT_BYTES, FLOAT), total))

        def add_four(i: Value) -> Sequence[Value]:
            add(b.mul(i, ir.Constant(INT64, FOUR)), FOUR)
            return []

        rest = b.and_(count, ir.Constant(INT64, FOUR - 1))
        fours = b.sub(count, rest)
        _unrolled(b, b.udiv(fours, ir.Constant(INT64, FOUR)), FOURS_UNROLLED, [], add_four)
        after = b.function.append_basic_block("after")
        jump = b.switch(rest, after)
        for number in range(1, FOUR):
            step = b.function.append_basic_block("step")
            jump.add_case(ir.Constant(INT64, number), step)
            b.position_at_end(step)
            add(fours, number)
            b.branch(after)
        b.position_at_end(after)

    return emitted(emit, 6, arrays=2)


def _emit_pack(
    b: Builder, source: Value, source_stride: Value, target: Value, target_stride: Value, narrow: bool, pairs: bool
) -> None:
    rows = transposed(b, _load_rows(b, source, source_stride, narrow))
    if pairs:
        second = b.add(source, b.mul(source_stride, ir.Constant(INT64, LANES)))
        others = transposed(b, _load_rows(b, second, source_stride, narrow))
        half = ir.Constant(_BITS, [ir.Constant(INT32, 16)] * LANES)
        rows = [
            b.bitcast(b.or_(b.lshr(b.bitcast(first, _BITS), half), b.bitcast(other, _BITS)), VECTOR)
            for first, other in zip(rows, others, strict=True)
        ]
    _store_rows(b, rows, target, target_stride)


def _emit_unpack(
    b: Builder, source: Value, source_stride: Value, target: Value, target_stride: Value, narrow: bool
) -> None:
    _store_rows(b, transposed(b, _load_rows(b, source, source_stride)), target, target_stride, narrow)


def _emit_add_unpack(
    b: Builder, source: Value, source_stride: Value, target: Value, target_stride: Value, narrow: bool
) -> None:
    rows, before = transposed(b, _load_rows(b, source, source_stride)), _load_rows(b, target, target_stride, narrow)
    _store_rows(b, [b.fadd(x, y) for x, y in zip(before, rows, strict=True)], target, target_stride, narrow)


def _load_rows(b: Builder, address: Value, stride_bytes: Value, narrow: bool = False) -> list[Value]:
    memory = Memory(b, address)
    load = memory.load_bfloat16 if narrow else memory.load
    return [load(b.mul(stride_bytes, ir.Constant(INT64, i))) for i in range(LANES)]


def _store_rows(b: Builder, rows: Sequence[Value], address: Value, stride_bytes: Value, narrow: bool = False) -> None:
    memory = Memory(b, address)
    store = memory.store_bfloat16 if narrow else memory.store
    for i, row in enumerate(rows):
        store(b.mul(stride_bytes, ir.Constant(INT64, i)), row)


prefetch: Any = emitted(emit_prefetch, 1)
"""prefetch(address): ask for a cache line that will be read soon"""
pack: Any = emitted(_emit_pack, 4, arrays=2)
"""pack(source, stride, target, stride, x, tiles): write 16 features of 16 tokens of x to tiles; strides are in bytes

Of 32 tokens, where tiles are bfloat16.
"""
unpack: Any = emitted(_emit_unpack, 4, arrays=1)
"""unpack(source, stride, target, stride, y): write 16 features x 16 tokens of tiles of float32 to tokens of y"""
add_unpack: Any = emitted(_emit_add_unpack, 4, arrays=1)
"""add_unpack(source, stride, target, stride, y): likewise, added to the content of y"""
