"""Building blocks of kernels in LLVM's own code: intrinsics, and vectors of 16 floats: memory, loops, products, sums.

Numba keeps an accumulator that is an array in memory, which costs nine tenths of the speed; a value of LLVM stays in
registers. Nothing here asks for an instruction set: where a CPU has no registers of 512 bits, LLVM makes several of
each vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import config
from numba.core import cgutils

from cstool.foundation.compiled.intrinsics import BYTE, FLOAT, INT16, INT32, INT64, Builder, Value

LANES = 16
"""floats of a vector"""
FLOAT_BYTES = 4
VECTOR_BYTES = LANES * FLOAT_BYTES
BFLOAT16_BYTES = 2
LINE_BYTES = 64
"""of a cache line"""
FOUR = 4
"""vectors whose lanes are summed up together"""

VECTOR = ir.VectorType(FLOAT, LANES)
QUAD = ir.VectorType(FLOAT, FOUR)
CONTRACT = ("contract",)
_HALF_UNIT, _MAGNITUDE, _INFINITY, _QUIET = 0x7FFF, 0x7FFFFFFF, 0x7F800000, 0x40
_PREFETCH_READ, _PREFETCH_NEAR, _PREFETCH_DATA = 0, 3, 1


def has_instructions(name: str) -> bool:
    """Whether kernels may use a set of instructions, by LLVM's name: this CPU has them, and Numba is not told else."""
    told: str | None = config.CPU_FEATURES  # type: ignore[attr-defined]
    return bool(binding.get_host_cpu_features().get(name)) and (told is None or f"+{name}" in told.split(","))


class Memory:
    """Floats in memory from an address on."""

    def __init__(self, builder: Builder, address: Value) -> None:
        self.builder = builder
        self.address = address

    def _pointer(self, offset_bytes: Value, to: Any) -> Value:
        if isinstance(offset_bytes, int):
            offset_bytes = ir.Constant(INT64, offset_bytes)
        return self.builder.inttoptr(self.builder.add(self.address, offset_bytes), to.as_pointer())

    def at(self, offset_bytes: Value) -> Memory:
        return Memory(self.builder, self.builder.add(self.address, offset_bytes))

    def load(self, offset_bytes: Value, of: Any = VECTOR, align: int = FLOAT_BYTES) -> Value:
        loaded = self.builder.load(self._pointer(offset_bytes, of))
        loaded.align = align
        return loaded

    def store(self, offset_bytes: Value, value: Value, align: int = FLOAT_BYTES) -> None:
        self.builder.store(value, self._pointer(offset_bytes, value.type)).align = align

    def load_bfloat16(self, offset_bytes: Value, lanes: int | None = LANES) -> Value:
        """Load bfloat16 numbers as floats, `lanes` of them as a vector; None for a single one."""
        narrow, wide, found = (of if lanes is None else ir.VectorType(of, lanes) for of in (INT16, INT32, FLOAT))
        b, half = self.builder, ir.Constant(INT32, 16)
        shift = half if lanes is None else ir.Constant(wide, [half] * lanes)
        return b.bitcast(b.shl(b.zext(self.load(offset_bytes, narrow, BFLOAT16_BYTES), wide), shift), found)

    def load_where(self, offset_bytes: Value, mask: Value | None, of: Any = VECTOR) -> Value:
        """Load the lanes of a mask, None for all; the others are zero, and their memory is not read."""
        if mask is None:
            return self.load(offset_bytes, of, _element_bytes(of))
        align = ir.Constant(INT32, _element_bytes(of))
        arguments = self._pointer(offset_bytes, of), align, mask, ir.Constant(of, None)
        return self._call_masked("load", of, of, *arguments)

    def store_where(self, offset_bytes: Value, mask: Value | None, value: Value) -> None:
        """Store the lanes of a mask, None for all; the memory of the others is left alone."""
        if mask is None:
            self.store(offset_bytes, value, _element_bytes(value.type))
            return
        align = ir.Constant(INT32, _element_bytes(value.type))
        arguments = value, self._pointer(offset_bytes, value.type), align, mask
        self._call_masked("store", value.type, ir.VoidType(), *arguments)

    def _call_masked(self, verb: str, of: Any, returned: Any, *arguments: Value) -> Value:
        element = "f32" if of.element == FLOAT else f"i{of.element.width}"
        kind = ir.FunctionType(returned, [argument.type for argument in arguments])
        name = f"llvm.masked.{verb}.v{of.count}{element}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)  # type: ignore[no-untyped-call]
        return self.builder.call(function, arguments)

    def store_bfloat16(self, offset_bytes: Value, numbers: Value) -> None:
        """Store floats, one or a vector of them, as bfloat16."""
        self.store(offset_bytes, emit_narrow(self.builder, numbers), BFLOAT16_BYTES)

    def load_tile(self, vectors: int) -> list[Value]:
        """Return the tile's vectors of one feature, which is where this memory begins."""
        return [self.load(v * VECTOR_BYTES, align=VECTOR_BYTES) for v in range(vectors)]

    def store_tile(self, values: Sequence[Value]) -> None:
        for v, value in enumerate(values):
            self.store(v * VECTOR_BYTES, value, align=VECTOR_BYTES)


def _element_bytes(of: Any) -> int:
    return FLOAT_BYTES if of.element == FLOAT else int(of.element.width) // 8


def emit_narrow(b: Builder, numbers: Value) -> Value:
    """Round a float, or a vector of them, to the nearest bfloat16, of two to the even one; NaN stays NaN."""
    vector = isinstance(numbers.type, ir.VectorType)

    def of(kind: Any) -> Any:
        return ir.VectorType(kind, numbers.type.count) if vector else kind

    def every(number: int) -> Value:
        one = ir.Constant(INT32, number)
        return ir.Constant(of(INT32), [one] * numbers.type.count) if vector else one

    bits, shift = b.bitcast(numbers, of(INT32)), every(16)
    upper = b.lshr(bits, shift)
    # Half a unit of the kept bits, less one where they are even: a tie goes to the even number.
    odd = b.and_(upper, every(1))
    nearest = b.lshr(b.add(bits, b.add(odd, every(_HALF_UNIT))), shift)
    is_nan = b.icmp_unsigned(">", b.and_(bits, every(_MAGNITUDE)), every(_INFINITY))
    return b.trunc(b.select(is_nan, b.or_(upper, every(_QUIET)), nearest), of(INT16))


def shuffle(b: Builder, first: Value, second: Value | None, lanes: Sequence[int]) -> Value:
    """Return the lanes asked for of two vectors laid end to end."""
    other = ir.Constant(first.type, ir.Undefined) if second is None else second
    return b.shuffle_vector(first, other, ir.Constant(ir.VectorType(INT32, len(lanes)), list(lanes)))


def splat(b: Builder, number: Value, lanes: int = LANES) -> Value:
    nothing = ir.Constant(ir.VectorType(number.type, lanes), ir.Undefined)
    return shuffle(b, b.insert_element(nothing, number, ir.Constant(INT32, 0)), None, [0] * lanes)


def every(number: float) -> Value:
    """Return a vector of the same float in all lanes."""
    return ir.Constant(VECTOR, [float(number)] * LANES)


def first_lanes(b: Builder, count: Value, lanes: int = LANES) -> Value:
    """Return the mask of the first `count` lanes: none where the count is below 1, all where it is large."""
    return b.icmp_signed("<", ir.Constant(ir.VectorType(INT64, lanes), list(range(lanes))), splat(b, count, lanes))


def multiply_add(b: Builder, x: Value, y: Value, total: Value) -> Value:
    return b.fadd(b.fmul(x, y, flags=CONTRACT), total, flags=CONTRACT)


def emit_prefetch(b: Builder, address: Value) -> None:
    """Ask for a cache line that will be read soon."""
    pointer = BYTE.as_pointer()
    function = b.module.declare_intrinsic(
        "llvm.prefetch", [pointer], ir.FunctionType(ir.VoidType(), [pointer, INT32, INT32, INT32])
    )
    how = [ir.Constant(INT32, number) for number in (_PREFETCH_READ, _PREFETCH_NEAR, _PREFETCH_DATA)]
    b.call(function, [b.inttoptr(address, pointer), *how])


def loop(
    b: Builder, start: Value, stop: Value, step: int, carried: Sequence[Value], body: Callable[..., Sequence[Value]]
) -> list[Value]:
    """Emit `for i in range(start, stop, step)`, whose body turns the carried values into their next ones."""
    before = b.block
    head, inside, after = (b.function.append_basic_block(name) for name in ("head", "inside", "after"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(INT64)
    i.add_incoming(start, before)
    values = [b.phi(value.type) for value in carried]
    for phi, value in zip(values, carried, strict=True):
        phi.add_incoming(value, before)
    b.cbranch(b.icmp_signed("<", i, stop), inside, after)
    b.position_at_end(inside)
    following = body(i, *values)
    for phi, value in zip(values, following, strict=True):
        phi.add_incoming(value, b.block)
    i.add_incoming(b.add(i, ir.Constant(INT64, step)), b.block)
    b.branch(head)
    b.position_at_end(after)
    return values


def sums_of_four(b: Builder, vectors: Sequence[Value]) -> Value:
    """Return the sums of the lanes of four vectors as one vector of four."""
    halves = [*range(8), *range(16, 24)]
    quarters = [lane + j for lane in (0, 8, 16, 24) for j in range(4)]

    def folded(first: Value, second: Value, lanes: Sequence[int], distance: int) -> Value:
        return b.fadd(shuffle(b, first, second, lanes), shuffle(b, first, second, [i + distance for i in lanes]))

    two, other_two = (folded(vectors[i], vectors[i + 1], halves, 8) for i in (0, 2))
    four = folded(two, other_two, quarters, 4)
    for distance in (2, 1):
        four = b.fadd(four, shuffle(b, four, None, [lane ^ distance for lane in range(LANES)]))
    return shuffle(b, four, None, [0, 4, 8, 12])


def transposed(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """Return the transposed block of up to 16 vectors; lanes of missing ones have any content.

    Its quarters change places, then the quarters of each quarter, down to single numbers.
    """
    block = [*rows, *[ir.Constant(VECTOR, ir.Undefined)] * (LANES - len(rows))]
    for distance in (8, 4, 2, 1):
        upper = [lane if not lane & distance else LANES + (lane ^ distance) for lane in range(LANES)]
        lower = [lane ^ distance if not lane & distance else LANES + lane for lane in range(LANES)]
        for i in range(LANES):
            if not i & distance:
                first, second = block[i], block[i + distance]
                block[i], block[i + distance] = shuffle(b, first, second, upper), shuffle(b, first, second, lower)
    return block
