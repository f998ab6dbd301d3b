"""The inner loops of the sparse kernels, written in LLVM's own vectors of 16 floats.

Numba keeps an accumulator that is an array in memory, which costs nine tenths of the speed; a value of LLVM stays in
registers. Nothing here asks for an instruction set: where a CPU has no registers of 512 bits, LLVM makes several of
each vector.

All addresses are of float32 and on a multiple of 64 bytes where a loop reads or writes tiles. A tile holds for every
feature `vectors` times 16 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 16
"""floats of a vector: one cache line"""
FLOAT_BYTES = 4
VECTOR_BYTES = LANES * FLOAT_BYTES
UNROLLED = 16
"""non-zeros of a row whose code follows one another without a branch; a power of two"""
FOUR = 4
"""non-zeros whose gradients are summed up together"""
FOURS_UNROLLED = UNROLLED // FOUR

_BYTE, _INT32, _INT64, _FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)
_QUAD = ir.VectorType(_FLOAT, 4)
_CONTRACT = ("contract",)
_PREFETCH_READ, _PREFETCH_NEAR, _PREFETCH_DATA = 0, 3, 1

Builder = Any
Value = Any


class _Memory:
    """Floats in memory from an address on."""

    def __init__(self, builder: Builder, address: Value) -> None:
        self.builder = builder
        self.address = address

    def _pointer(self, offset_bytes: Value, to: Any) -> Value:
        if isinstance(offset_bytes, int):
            offset_bytes = ir.Constant(_INT64, offset_bytes)
        return self.builder.inttoptr(self.builder.add(self.address, offset_bytes), to.as_pointer())

    def at(self, offset_bytes: Value) -> _Memory:
        return _Memory(self.builder, self.builder.add(self.address, offset_bytes))

    def load(self, offset_bytes: Value, of: Any = _VECTOR, align: int = FLOAT_BYTES) -> Value:
        loaded = self.builder.load(self._pointer(offset_bytes, of))
        loaded.align = align
        return loaded

    def store(self, offset_bytes: Value, value: Value, align: int = FLOAT_BYTES) -> None:
        self.builder.store(value, self._pointer(offset_bytes, value.type)).align = align

    def load_tile(self, vectors: int) -> list[Value]:
        """Return the tile's vectors of one feature, which is where this memory begins."""
        return [self.load(v * VECTOR_BYTES, align=VECTOR_BYTES) for v in range(vectors)]

    def store_tile(self, values: Sequence[Value]) -> None:
        for v, value in enumerate(values):
            self.store(v * VECTOR_BYTES, value, align=VECTOR_BYTES)


def _shuffle(b: Builder, first: Value, second: Value | None, lanes: Sequence[int]) -> Value:
    """Return the lanes asked for of two vectors laid end to end."""
    other = ir.Constant(first.type, ir.Undefined) if second is None else second
    return b.shuffle_vector(first, other, ir.Constant(ir.VectorType(_INT32, len(lanes)), list(lanes)))


def _splat(b: Builder, number: Value) -> Value:
    one = b.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(_INT32, 0))
    return _shuffle(b, one, None, [0] * LANES)


def _multiply_add(b: Builder, x: Value, y: Value, total: Value) -> Value:
    return b.fadd(b.fmul(x, y, flags=_CONTRACT), total, flags=_CONTRACT)


def _loop(
    b: Builder, start: Value, stop: Value, step: int, carried: Sequence[Value], body: Callable[..., Sequence[Value]]
) -> list[Value]:
    """Emit `for i in range(start, stop, step)`, whose body turns the carried values into their next ones."""
    before = b.block
    head, inside, after = (b.function.append_basic_block(name) for name in ("head", "inside", "after"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(_INT64)
    i.add_incoming(start, before)
    values = [b.phi(value.type) for value in carried]
    for phi, value in zip(values, carried, strict=True):
        phi.add_incoming(value, before)
    b.cbranch(b.icmp_signed("<", i, stop), inside, after)
    b.position_at_end(inside)
    following = body(i, *values)
    for phi, value in zip(values, following, strict=True):
        phi.add_incoming(value, b.block)
    i.add_incoming(b.add(i, ir.Constant(_INT64, step)), b.block)
    b.branch(head)
    b.position_at_end(after)
    return values


def _unrolled(
    b: Builder, count: Value, turns: int, carried: Sequence[Value], body: Callable[..., Sequence[Value]]
) -> list[Value]:
    """Emit `for i in range(count)` as `_loop` does, so many turns at a time, then a jump into the code of the rest.

    Where counts repeat, a CPU foresees that jump, and a short row has no other branch.
    """

    def several(i: Value, *values: Value) -> Sequence[Value]:
        for j in range(turns):
            values = tuple(body(b.add(i, ir.Constant(_INT64, j)), *values))
        return values

    whole = b.and_(count, ir.Constant(_INT64, -turns))
    values = _loop(b, ir.Constant(_INT64, 0), whole, turns, carried, several)
    rest = b.sub(count, whole)
    count = _opaque(b, count)
    before = b.block
    steps = {left: b.function.append_basic_block("step") for left in range(turns - 1, 0, -1)}
    after = b.function.append_basic_block("after")
    jump = b.switch(rest, after)
    sources = [(before, values)]
    for left, step in steps.items():
        jump.add_case(ir.Constant(_INT64, left), step)
        b.position_at_end(step)
        joined = _joined(b, sources)
        following = list(body(b.sub(count, ir.Constant(_INT64, left)), *joined))
        sources = [(before, values), (b.block, following)]
        b.branch(steps.get(left - 1, after))
    b.position_at_end(after)
    return _joined(b, sources)


def _joined(b: Builder, sources: Sequence[tuple[Any, Sequence[Value]]]) -> list[Value]:
    """Return what values are at the beginning of a block, by the blocks that lead there."""
    joined = [b.phi(value.type) for value in sources[0][1]]
    for block, values in sources:
        for phi, value in zip(joined, values, strict=True):
            phi.add_incoming(value, block)
    return joined


def _opaque(b: Builder, number: Value) -> Value:
    """Return a 64-bit number of which LLVM knows nothing: it computes it once and does not fold it into addresses.

    A CPU splits a multiplication whose operand lies at the sum of two registers into two operations.
    """
    return b.asm(ir.FunctionType(_INT64, [_INT64]), "", "=r,0", [number], False)


def _generated(emit: Callable[..., None], arguments: int) -> Any:
    """Return the signature and the generator of an intrinsic that takes 64-bit numbers and returns nothing."""

    def generate(context: Any, builder: Builder, _signature: Any, values: Sequence[Value]) -> Any:
        emit(builder, *values)
        return context.get_dummy_value()

    return types.void(*[types.int64] * arguments), generate


def _row_intrinsic(emit: Callable[..., None]) -> Any:
    def row(_typing: Any, _columns: Any, _numbers: Any, _count: Any, _tiles: Any, _tile: Any, _start: Any) -> Any:
        return _generated(emit, 6)

    return intrinsic(row)


def _block_intrinsic(emit: Callable[..., None]) -> Any:
    def block(_typing: Any, _source: Any, _source_stride: Any, _target: Any, _target_stride: Any) -> Any:
        return _generated(emit, 4)

    return intrinsic(block)


def _type_prefetch(_typing: Any, _address: Any) -> Any:
    return _generated(_emit_prefetch, 1)


def _tile_of(b: Builder, tiles: Value, columns: Value, position: Value, vectors: int) -> _Memory:
    """Return the tile of the feature that a byte of `columns` names."""
    column = b.load(b.inttoptr(b.add(columns, position), _BYTE.as_pointer()))
    size = ir.Constant(_INT64, vectors * VECTOR_BYTES)
    return _Memory(b, _opaque(b, b.add(tiles, b.mul(b.zext(column, _INT64), size))))


def make_gather_row(vectors: int, *, begins: bool) -> Any:
    """Return gather(columns, values, count, x, y, start): y += value * x[column] over the non-zeros of a row.

    y, the tile of one output, stays in registers.

    Args:
        vectors: of a tile
        begins: y begins with the number at `start` in place of what it holds
    """

    def emit(b: Builder, columns: Value, values: Value, count: Value, x: Value, y: Value, start: Value) -> None:
        output, weights = _Memory(b, y), _Memory(b, values)
        sums = [_splat(b, _Memory(b, start).load(0, _FLOAT))] * vectors if begins else output.load_tile(vectors)

        def body(i: Value, *sums: Value) -> Sequence[Value]:
            weight = _splat(b, weights.load(b.mul(i, ir.Constant(_INT64, FLOAT_BYTES)), _FLOAT))
            tile = _tile_of(b, x, columns, i, vectors).load_tile(vectors)
            return [_multiply_add(b, weight, t, total) for t, total in zip(tile, sums, strict=True)]

        output.store_tile(_unrolled(b, count, UNROLLED, sums, body))

    return _row_intrinsic(emit)


def make_scatter_row(vectors: int) -> Any:
    """Return scatter(columns, values, count, delta_x, delta_y, _): delta_x[column] += value * delta_y over a row.

    delta_y, the tile of one output, stays in registers.
    """

    def emit(b: Builder, columns: Value, values: Value, count: Value, delta_x: Value, delta_y: Value, _: Value) -> None:
        weights, deltas = _Memory(b, values), _Memory(b, delta_y).load_tile(vectors)

        def body(i: Value) -> Sequence[Value]:
            weight = _splat(b, weights.load(b.mul(i, ir.Constant(_INT64, FLOAT_BYTES)), _FLOAT))
            target = _tile_of(b, delta_x, columns, i, vectors)
            totals = target.load_tile(vectors)
            target.store_tile([_multiply_add(b, weight, d, t) for d, t in zip(deltas, totals, strict=True)])
            return []

        _unrolled(b, count, UNROLLED, [], body)

    return _row_intrinsic(emit)


def make_dot_row(vectors: int) -> Any:
    """Return dot(columns, gradients, count, x, delta_y, _): gradient += sum over tokens of x[column] * delta_y.

    Four non-zeros at a time: their four vectors of partial sums are added up across lanes together.
    """

    def emit(b: Builder, columns: Value, gradients: Value, count: Value, x: Value, delta_y: Value, _: Value) -> None:
        sums, deltas = _Memory(b, gradients), _Memory(b, delta_y).load_tile(vectors)

        def dot(i: Value) -> Value:
            tile = _tile_of(b, x, columns, i, vectors).load_tile(vectors)
            total = b.fmul(tile[0], deltas[0], flags=_CONTRACT)
            for t, delta in zip(tile[1:], deltas[1:], strict=True):
                total = _multiply_add(b, t, delta, total)
            return total

        def add(first: Value, number: int) -> None:
            """Add to so many gradients, four at the most."""
            dots = [dot(b.add(first, ir.Constant(_INT64, j))) for j in range(number)]
            totals = _sums_of_four(b, [dots[j % number] for j in range(FOUR)])
            here = sums.at(b.mul(first, ir.Constant(_INT64, FLOAT_BYTES)))
            if number == FOUR:
                here.store(0, b.fadd(here.load(0, _QUAD), totals))
                return
            for j in range(number):
                total = b.extract_element(totals, ir.Constant(_INT32, j))
                here.store(j * FLOAT_BYTES, b.fadd(here.load(j * FLOAT_BYTES, _FLOAT), total))

        def add_four(i: Value) -> Sequence[Value]:
            add(b.mul(i, ir.Constant(_INT64, FOUR)), FOUR)
            return []

        rest = b.and_(count, ir.Constant(_INT64, FOUR - 1))
        fours = b.sub(count, rest)
        _unrolled(b, b.udiv(fours, ir.Constant(_INT64, FOUR)), FOURS_UNROLLED, [], add_four)
        after = b.function.append_basic_block("after")
        jump = b.switch(rest, after)
        for number in range(1, FOUR):
            step = b.function.append_basic_block("step")
            jump.add_case(ir.Constant(_INT64, number), step)
            b.position_at_end(step)
            add(fours, number)
            b.branch(after)
        b.position_at_end(after)

    return _row_intrinsic(emit)


def _sums_of_four(b: Builder, vectors: Sequence[Value]) -> Value:
    """Return the sums of the lanes of four vectors as one vector of four."""
    halves = [*range(8), *range(16, 24)]
    quarters = [lane + j for lane in (0, 8, 16, 24) for j in range(4)]

    def folded(first: Value, second: Value, lanes: Sequence[int], distance: int) -> Value:
        return b.fadd(_shuffle(b, first, second, lanes), _shuffle(b, first, second, [i + distance for i in lanes]))

    two, other_two = (folded(vectors[i], vectors[i + 1], halves, 8) for i in (0, 2))
    four = folded(two, other_two, quarters, 4)
    for distance in (2, 1):
        four = b.fadd(four, _shuffle(b, four, None, [lane ^ distance for lane in range(LANES)]))
    return _shuffle(b, four, None, [0, 4, 8, 12])


def _emit_prefetch(b: Builder, address: Value) -> None:
    pointer = _BYTE.as_pointer()
    function = b.module.declare_intrinsic(
        "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, _INT32, _INT32, _INT32])
    )
    how = [ir.Constant(_INT32, number) for number in (_PREFETCH_READ, _PREFETCH_NEAR, _PREFETCH_DATA)]
    b.call(function, [b.inttoptr(address, pointer), *how])


def _emit_transpose(b: Builder, source: Value, source_stride: Value, target: Value, target_stride: Value) -> None:
    _store_rows(b, _transposed(b, _load_rows(b, source, source_stride)), target, target_stride)


def _emit_add_transpose(b: Builder, source: Value, source_stride: Value, target: Value, target_stride: Value) -> None:
    rows, before = _transposed(b, _load_rows(b, source, source_stride)), _load_rows(b, target, target_stride)
    _store_rows(b, [b.fadd(x, y) for x, y in zip(before, rows, strict=True)], target, target_stride)


def _load_rows(b: Builder, address: Value, stride_bytes: Value) -> list[Value]:
    memory = _Memory(b, address)
    return [memory.load(b.mul(stride_bytes, ir.Constant(_INT64, i))) for i in range(LANES)]


def _store_rows(b: Builder, rows: Sequence[Value], address: Value, stride_bytes: Value) -> None:
    memory = _Memory(b, address)
    for i, row in enumerate(rows):
        memory.store(b.mul(stride_bytes, ir.Constant(_INT64, i)), row)


def _transposed(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """Return the transposed 16 x 16 block: its quarters change places, then theirs, down to single numbers."""
    block = list(rows)
    for distance in (8, 4, 2, 1):
        upper = [lane if not lane & distance else LANES + (lane ^ distance) for lane in range(LANES)]
        lower = [lane ^ distance if not lane & distance else LANES + lane for lane in range(LANES)]
        for i in range(LANES):
            if not i & distance:
                first, second = block[i], block[i + distance]
                block[i], block[i + distance] = _shuffle(b, first, second, upper), _shuffle(b, first, second, lower)
    return block


prefetch: Any = intrinsic(_type_prefetch)
"""prefetch(address): ask for a cache line that will be read soon"""
transpose: Any = _block_intrinsic(_emit_transpose)
"""transpose(source, stride, target, stride): write a block of 16 x 16 floats transposed; strides in bytes"""
add_transpose: Any = _block_intrinsic(_emit_add_transpose)
"""add_transpose(source, stride, target, stride): likewise, added to what is there"""
