"""Row-by-row products with weights of 8 or 4 bits: whole numbers times whole numbers, summed up exactly.

A row of a weight is cut into groups of columns with a scale each, and so is a row of x. Of a group, codes meet codes:
their products are summed up in 32 bits, without rounding, whatever the order. The sum becomes a float, is multiplied
by (scale of the weight x scale of x), and is added to the sums of the groups before. Every step rounds to the nearest
float32, and none is fused with the next. So an element has the same bits beside any other rows, on any thread, and on
any CPU.

A weight lies in blocks of 16 rows, one for each lane. Of a block, group after group, and within a group four columns
after four, 64 bytes have the codes of four columns, of row after row. So a thread reads memory in a line. Of 4 bits the
lower half of a byte belongs to four columns, the upper half to the four columns behind them.

Codes of weights are stored without a sign, with an offset; those of x have a sign, as `vpdpbusd` wants them, which adds
four products to each of 16 sums. The offset times the sum of x's codes is what a sum begins with, negated.

CPUs without AVX512-VNNI multiply codes of 8 bits as 16-bit numbers in pairs (`vpmaddwd`), as bytes would saturate. So x
has 16 bits there, of four columns the first and the third, then the second and the fourth. Codes of 4 bits stay bytes
(`vpmaddubsw`): their products are summed up in 16 bits as long as these suffice.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD, VPMADDWD, VPMADDUBSW, VPSHUFB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import binding, ir

from cstool.foundation.compiled.atomics import take
from cstool.foundation.compiled.intrinsics import BYTE, FLOAT, INT16, INT32, INT64, Builder, Value, emitted
from cstool.training.kernels._jit import exact
from cstool.training.kernels._vectors import (
    FLOAT_BYTES,
    LANES,
    VECTOR,
    Memory,
    first_lanes,
    has_instructions,
    loop,
    shuffle,
    splat,
)

QUAD = 4
"""columns whose codes lie together"""
QUAD_BYTES = QUAD * LANES
"""of the codes of a block, one byte each"""
STEP = 4 * QUAD
"""columns that a loop takes at a time; a width is rounded up to so many"""
GROUP = 32
"""columns of a group, of the formats that have small groups"""
MOST_TOKENS = 8 if has_instructions("avx512f") else 4
"""rows of x of the largest tile: so many sums fit registers"""
CHAINS = 4
"""sums that hide the time of each in a tile of one row"""
TURN_BYTES = 64 * 1024
"""bytes of codes that a thread takes at a time, about: some five microseconds of reading them"""

_WORDS = ir.VectorType(INT32, LANES)
_SHORTS = ir.VectorType(INT16, 2 * LANES)
_BYTES = ir.VectorType(BYTE, QUAD_BYTES)
_HALF_EXPONENTS = 2.0**112
"""the bits of a float16, moved to where float32 has them, are a number that is so many times too small"""

binding.initialize_native_asmparser()
_HAS_VNNI, _HAS_BYTES = has_instructions("avx512vnni"), has_instructions("avx2")
_HALF_BYTES = ir.VectorType(BYTE, QUAD_BYTES // 2)
_HALF_SHORTS = ir.VectorType(INT16, LANES)
_MULTIPLY_BYTES = ir.InlineAsm(ir.FunctionType(_HALF_SHORTS, [_HALF_BYTES] * 2), "vpmaddubsw $2, $1, $0", "=v,v,v")
_MOST_OF_TWO_BYTES = 2 * 127
"""largest sum of the magnitudes of two codes of x"""
_ADD_PRODUCTS = ir.InlineAsm(ir.FunctionType(_WORDS, [_WORDS] * 3), "vpdpbusd $3, $2, $0", "=v,0,v,v")


class Format(NamedTuple):
    """How the codes and scales of a weight lie in memory."""

    name: str
    is_narrow: bool
    """whether a code has 4 bits"""
    group: int | None
    """columns of a group; None: as the weight has it"""
    scale: str
    """dtype of a scale: float32, uint16 for the bits of a float16, or uint8 for an exponent"""
    offset: int
    """of a code, over the number that it stands for"""
    table: tuple[int, ...] | None = None
    """codes of one byte by those of 4 bits; None where these are the same"""
    unit: float = 1.0
    """of the numbers that codes stand for, in scales"""


INT8 = Format("int8", False, None, "float32", 128)
Q8_0 = Format("q8_0", False, GROUP, "uint16", 128)
Q4_0 = Format("q4_0", True, GROUP, "uint16", 8)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12)
"""numbers of three bits, in halves"""
MXFP4 = Format("mxfp4", True, GROUP, "uint8", 12, tuple(12 + sign * n for sign in (1, -1) for n in _E2M1), 0.5)
FORMATS = {each.name: each for each in (INT8, Q8_0, Q4_0, MXFP4)}


def _number(value: int) -> Value:
    return ir.Constant(INT64, value)


def _all(of: Any, number: int) -> Value:
    return ir.Constant(of, [number] * of.count)


def is_wide(form: Format) -> bool:
    """Whether codes of x have 16 bits here, see the module."""
    return not (_HAS_VNNI or (form.is_narrow and _HAS_BYTES))


class _Sums:
    """Sums of products of a weight's codes with those of rows of x: emits the code that adds to them.

    Args:
        xs: rows of x
        begun: sums of each row, `chains` vectors
    """

    def __init__(self, b: Builder, form: Format, xs: Sequence[Memory], begun: Sequence[Value], chains: int) -> None:
        self._b, self._xs, self._chains = b, xs, chains
        self.found = list(begun)
        self._adds = self._add_four if _HAS_VNNI else self._add_wide if is_wide(form) else self._add_bytes
        self._largest = max(form.table or (15,))
        self._shorts: list[Value] = []
        self._held = 0

    def add(self, weight: Value, quad: int, offset: Value) -> None:
        """Add the products of four columns: codes of the weight, and place of those of x behind an offset [bytes]."""
        self._adds(weight, quad, offset)

    def _add_four(self, weight: Value, quad: int, offset: Value) -> None:
        for t, x in enumerate(self._xs):
            four = splat(self._b, x.at(offset).load(quad * QUAD, INT32, 1))
            at = t * self._chains + quad % self._chains
            self.found[at] = self._b.call(_ADD_PRODUCTS, [self.found[at], weight, four])

    def _add_wide(self, weight: Value, quad: int, offset: Value) -> None:
        b, weights = self._b, self._b.bitcast(weight, _SHORTS)
        pairs = b.and_(weights, _all(_SHORTS, 255)), b.lshr(weights, _all(_SHORTS, 8))
        for t, x in enumerate(self._xs):
            at = t * self._chains + quad % self._chains
            for k, pair in enumerate(pairs):
                two = splat(b, x.at(offset).load((2 * quad + k) * QUAD, INT32, 1))
                self.found[at] = b.add(self.found[at], _emit_pairs(b, pair, b.bitcast(two, _SHORTS)))

    def _add_bytes(self, weight: Value, quad: int, offset: Value) -> None:
        b = self._b
        halves = [_half(b, b.bitcast(weight, _BYTES), half) for half in range(2)]
        if not self._shorts:
            self._shorts = [_all(_HALF_SHORTS, 0)] * (2 * len(self._xs))
        for t, x in enumerate(self._xs):
            four = b.bitcast(splat(b, x.at(offset).load(quad * QUAD, INT32, 1), LANES // 2), _HALF_BYTES)
            for k, half in enumerate(halves):
                at = 2 * t + k
                self._shorts[at] = b.add(self._shorts[at], b.call(_MULTIPLY_BYTES, [half, four]))
        self._held += 1
        if (self._held + 1) * self._largest * _MOST_OF_TWO_BYTES >= 2**15:
            self.flush()

    def flush(self) -> None:
        """Add sums of 16 bits to those of 32."""
        for t in range(len(self._shorts) // 2):
            both = shuffle(self._b, self._shorts[2 * t], self._shorts[2 * t + 1], range(2 * LANES))
            at = t * self._chains
            self.found[at] = self._b.add(self.found[at], _emit_pairs(self._b, both, _all(_SHORTS, 1)))
        self._shorts, self._held = [], 0


def _half(b: Builder, codes: Value, half: int) -> Value:
    """Return the codes of 8 of 16 rows."""
    count = QUAD_BYTES // 2
    return shuffle(b, codes, None, range(half * count, (half + 1) * count))


def _emit_pairs(b: Builder, left: Value, right: Value) -> Value:
    """Sums of two products of 16 bits each, in a form that LLVM makes `pmaddwd` of."""
    wide = ir.VectorType(INT32, 2 * LANES)
    products = b.mul(b.sext(left, wide), b.sext(right, wide))
    return b.add(*(shuffle(b, products, None, range(first, 2 * LANES, 2)) for first in (0, 1)))


def _emit_look_up(b: Builder, table: Sequence[int], codes: Value) -> Value:
    """Return the numbers of a table of 16, by codes of one byte each."""
    for feature, count in (("avx512bw", QUAD_BYTES), ("avx2", QUAD_BYTES // 2)):
        if has_instructions(feature):
            of = ir.VectorType(BYTE, count)
            look_up = ir.InlineAsm(ir.FunctionType(of, [of] * 2), "vpshufb $2, $1, $0", "=v,v,v")
            tables = ir.Constant(of, list(table) * (count // len(table)))
            parts = [shuffle(b, codes, None, range(k, k + count)) for k in range(0, QUAD_BYTES, count)]
            looked_up = [b.call(look_up, [tables, part]) for part in parts]
            return looked_up[0] if len(parts) == 1 else shuffle(b, looked_up[0], looked_up[1], range(QUAD_BYTES))
    found = _all(_BYTES, table[0])
    for code, number in enumerate(table[1:], start=1):
        found = b.select(b.icmp_unsigned("==", codes, _all(_BYTES, code)), _all(_BYTES, number), found)
    return found


def _emit_codes(b: Builder, form: Format, memory: Memory, quad: int) -> list[Value]:
    """Load the codes of a block, a byte each: of four columns, or of 4 bits those of eight."""
    if not form.is_narrow:
        return [memory.load(quad * QUAD_BYTES, _WORDS, 1)]
    both = memory.load(quad // 2 * QUAD_BYTES, _BYTES, 1)
    words = b.lshr(b.bitcast(both, _WORDS), _all(_WORDS, 4))
    halves = [b.and_(part, _all(_BYTES, 15)) for part in (both, b.bitcast(words, _BYTES))]
    if form.table is not None:
        halves = [_emit_look_up(b, form.table, half) for half in halves]
    return [b.bitcast(half, _WORDS) for half in halves]


def _emit_scales(b: Builder, form: Format, memory: Memory) -> Value:
    """Load the scales of a block as floats."""
    if form.scale == "float32":
        return memory.load(0)
    if form.scale == "uint8":
        exponents = b.zext(memory.load(0, ir.VectorType(BYTE, LANES), 1), _WORDS)
        # The least exponent is that of a number below the normal ones.
        bits = b.select(
            b.icmp_unsigned("==", exponents, _all(_WORDS, 0)),
            _all(_WORDS, 1 << 22),
            b.shl(exponents, _all(_WORDS, 23)),
        )
        return b.fmul(b.bitcast(bits, VECTOR), ir.Constant(VECTOR, [form.unit] * LANES))
    if has_instructions("f16c"):
        return b.fpext(memory.load(0, ir.VectorType(ir.HalfType(), LANES), 2), VECTOR)
    bits = b.zext(memory.load(0, ir.VectorType(INT16, LANES), 2), _WORDS)
    magnitude = b.bitcast(b.shl(b.and_(bits, _all(_WORDS, 0x7FFF)), _all(_WORDS, 13)), VECTOR)
    found = b.fmul(magnitude, ir.Constant(VECTOR, [_HALF_EXPONENTS] * LANES))
    sign = b.shl(b.and_(bits, _all(_WORDS, 0x8000)), _all(_WORDS, 16))
    return b.bitcast(b.or_(b.bitcast(found, _WORDS), sign), VECTOR)


_SCALE_BYTES = {"float32": 4, "uint16": 2, "uint8": 1}


def _make_tile(form: Format, tokens: int) -> Any:
    """Return tile(x, x_stride, x_scales, x_sums, group_stride, codes, scales, groups, quads, y, y_stride, rows).

    It writes x weight^T of `tokens` rows of x and the first `rows` rows of a block. Addresses, and strides in bytes;
    `quads` are the columns of a group, divided by 4.
    """
    chains = CHAINS if tokens == 1 else 1

    def emit(
        b: Builder,
        x: Value,
        x_stride: Value,
        x_scales: Value,
        x_sums: Value,
        group_stride: Value,
        codes: Value,
        scales: Value,
        groups: Value,
        quads: Value,
        y: Value,
        y_stride: Value,
        rows: Value,
    ) -> None:
        def lines(address: Value, stride: Value) -> list[Memory]:
            return [Memory(b, b.add(address, b.mul(stride, _number(t)))) for t in range(tokens)]

        xs, x_scale, x_sum = lines(x, x_stride), lines(x_scales, group_stride), lines(x_sums, group_stride)
        code_bytes = QUAD_BYTES // 2 if form.is_narrow else QUAD_BYTES

        def some(place: Memory, first: Value, begun: Sequence[Value], count: int) -> list[Value]:
            """Add the products of so many quads, from those at some place of the weight and a number of x's on."""
            sums, offset = _Sums(b, form, xs, begun, chains), b.mul(first, _number(QUAD * (1 + is_wide(form))))
            for quad in range(0, count, 2 if form.is_narrow else 1):
                for k, weight in enumerate(_emit_codes(b, form, place, quad)):
                    sums.add(weight, quad + k, offset)
            sums.flush()
            return sums.found

        def group(g: Value, *totals: Value) -> Sequence[Value]:
            first = b.mul(g, quads)
            begun = []
            for t in range(tokens):
                total = x_sum[t].at(b.mul(g, _number(FLOAT_BYTES))).load(0, INT32)
                begun.append(splat(b, b.mul(total, ir.Constant(INT32, -form.offset))))
                begun += [_all(_WORDS, 0)] * (chains - 1)
            # Where x has 16 bits, LLVM would keep codes of more columns than there are registers.
            step = 1 + form.is_narrow if is_wide(form) and tokens > 1 else STEP // QUAD
            if form.group is None or step < STEP // QUAD:

                def body(q: Value, *sums: Value) -> Sequence[Value]:
                    at = b.add(first, q)
                    place = Memory(b, b.add(codes, b.mul(at, _number(code_bytes))))
                    return some(place, at, sums, step)

                sums = loop(b, _number(0), quads, step, begun, body)
            else:
                place = Memory(b, b.add(codes, b.mul(first, _number(code_bytes))))
                sums = some(place, first, begun, form.group // QUAD)
            offset = b.mul(g, _number(LANES * _SCALE_BYTES[form.scale]))
            scale = _emit_scales(b, form, Memory(b, b.add(scales, offset)))
            found = []
            for t in range(tokens):
                whole = sums[t * chains]
                for other in sums[t * chains + 1 : (t + 1) * chains]:
                    whole = b.add(whole, other)
                factor = splat(b, x_scale[t].at(b.mul(g, _number(FLOAT_BYTES))).load(0, FLOAT))
                found.append(b.fadd(totals[t], b.fmul(b.sitofp(whole, VECTOR), b.fmul(scale, factor))))
            return found

        totals = loop(b, _number(0), groups, 1, [ir.Constant(VECTOR, [0.0] * LANES)] * tokens, group)
        mask = first_lanes(b, rows)
        for line, total in zip(lines(y, y_stride), totals, strict=True):
            line.store_where(0, mask, total)

    return emitted(emit, 12)


def _make_kernels(form: Format) -> tuple[Any, Any]:
    tile, tile4, tile2, tile1 = (_make_tile(form, tokens) for tokens in (MOST_TOKENS, 4, 2, 1))
    scale_bytes = LANES * _SCALE_BYTES[form.scale]

    def blocks(x, x_scales, x_sums, codes, scales, group, bias, y, start, stop):  # type: ignore[no-untyped-def]
        tokens, groups = x_scales.shape
        x_stride, group_stride, y_stride = x.strides[0], x_scales.strides[0], y.strides[0]
        for block in range(start, stop):
            at, column = codes.ctypes.data + block * codes.strides[0], y.ctypes.data + block * LANES * FLOAT_BYTES
            weight = group_stride, at, scales.ctypes.data + block * groups * scale_bytes, groups, group // QUAD
            rows, t = y.shape[1] - block * LANES, 0
            while t < tokens:
                row, place = x.ctypes.data + t * x_stride, column + t * y_stride
                about = x_scales.ctypes.data + t * group_stride, x_sums.ctypes.data + t * group_stride
                if t + MOST_TOKENS <= tokens:
                    tile(row, x_stride, *about, *weight, place, y_stride, rows)
                    t += MOST_TOKENS
                elif t + 4 <= tokens:
                    tile4(row, x_stride, *about, *weight, place, y_stride, rows)
                    t += 4
                elif t + 2 <= tokens:
                    tile2(row, x_stride, *about, *weight, place, y_stride, rows)
                    t += 2
                else:
                    tile1(row, x_stride, *about, *weight, place, y_stride, rows)
                    t += 1
            if bias.shape[0] > 0:
                for t in range(tokens):
                    for r in range(block * LANES, min(block * LANES + LANES, y.shape[1])):
                        y[t, r] += bias[r]

    inner = exact(blocks, of=f"{form.name}.blocks")

    def whole(x, x_scales, x_sums, codes, scales, group, bias, y):  # type: ignore[no-untyped-def]
        inner(x, x_scales, x_sums, codes, scales, group, bias, y, 0, codes.shape[0])

    def by_turns(x, x_scales, x_sums, codes, scales, group, bias, y, taken, index, turn):  # type: ignore[no-untyped-def]
        count, counter = codes.shape[0], taken.ctypes.data + index * 8
        start = take(counter, turn)
        while start < count:
            inner(x, x_scales, x_sums, codes, scales, group, bias, y, start, min(start + turn, count))
            start = take(counter, turn)

    return exact(whole, of=form.name), exact(by_turns, of=form.name)


KERNELS = {form.name: _make_kernels(form) for form in FORMATS.values()}
"""by name of a format: the kernel of a whole product, and that of a share of it"""
