"""Every vector operation on memory against one element after the other in NumPy, and its cycles in closed form."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric import vector
from cstool.csl.fabric.arch import WSE2, WSE3
from cstool.csl.fabric.dsd import Mem1d, Mem4d
from cstool.csl.fabric.memory import Memory
from cstool.csl.fabric.numbers import fused, fused_arrays
from cstool.csl.fabric.operations import BYTES, DTYPES, FUSED, SAME, UNFUSED
from tests.examples import examples
from tests.unit.csl.fabric.pe_run import main, program, run

f32, f16 = np.float32, np.float16
u16, i16 = np.uint16, np.int16


def nearest(exact, kind):
    """The float of a kind that is nearest to a Fraction; of two, the even one."""
    guess = kind(float(exact))
    if not np.isfinite(guess):
        return guess
    near = [guess, np.nextafter(guess, kind(np.inf)), np.nextafter(guess, kind(-np.inf))]
    near = [each for each in near if np.isfinite(each)]
    bits = np.uint32 if kind is f32 else u16
    return min(near, key=lambda each: (abs(Fraction(float(each)) - exact), int(each.view(bits)) & 1))


def multiply_add(a, b, c, kind):
    if not all(np.isfinite(each) for each in (a, b, c)):
        return kind(float(b) * float(c) + float(a))
    exact = Fraction(float(a)) + Fraction(float(b)) * Fraction(float(c))
    return nearest(exact, kind) if exact else kind(float(b) * float(c) + float(a))


def shifted(a, n, by):
    return by(int(a), min(int(n), 31)) & 0xFFFF


ONE = {
    "fabs": lambda kind: abs,
    "fadd": lambda kind: lambda a, b: a + b,
    "fsub": lambda kind: lambda a, b: a - b,
    "fmul": lambda kind: lambda a, b: a * b,
    "fmax": lambda kind: np.fmax,
    "fmov": lambda kind: lambda a: a,
    "fneg": lambda kind: lambda a: -a,
    "fscale": lambda kind: lambda a, n: kind(np.ldexp(float(a), int(n))),
    "fnorm": lambda kind: lambda a: a if not np.isfinite(a) or a == 0 else kind(2 * np.frexp(float(a))[0]),
}
EXPECTED = {
    **{f"{name}h": made(f16) for name, made in ONE.items()},
    **{f"{name}s": made(f32) for name, made in ONE.items()},
    **dict.fromkeys(
        ("fh2xp16", "fs2xp16"),
        lambda a: i16(np.clip(np.trunc(np.nan_to_num(float(a), nan=0.0)), -32768, 32767)),
    ),
    **dict.fromkeys(("xp162fh", "fs2h"), lambda a: f16(a)),
    **dict.fromkeys(("xp162fs", "fh2s"), lambda a: f32(a)),
    "faddhs": lambda a, b: a + f32(b),
    "fmach": lambda a, b, c: multiply_add(a, b, c, f16),
    **dict.fromkeys(("fmacs", "fmachs"), lambda a, b, c: multiply_add(a, b, c, f32)),
    **dict.fromkeys(("mov16", "mov32"), lambda a: a),
    "add16": lambda a, b: a + b,
    "sub16": lambda a, b: a - b,
    "and16": lambda a, b: a & b,
    "or16": lambda a, b: a | b,
    "xor16": lambda a, b: a ^ b,
    "sll16": lambda a, n: u16(shifted(a, n, lambda x, y: x << y)),
    "slr16": lambda a, n: u16(shifted(a, n, lambda x, y: x >> y)),
    "sar16": lambda a, n: u16(shifted(a, n if 0 <= n < 16 else 15, lambda x, y: x >> y)).view(i16),
    "popcnt": lambda a: u16(bin(int(a)).count("1")),
    "clz": lambda a: u16(f"{int(a):016b}".find("1") if a else 16),
    "ctz": lambda a: u16(f"{int(a):016b}"[::-1].find("1") if a else 16),
}
SPECIAL = {
    "f": [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38, 1.0, 2.0**-126],
    "e": [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 65504.0, -65504.0, 1.0, 2.0**-14],
}


def test_every_operation_is_tested_here():
    assert {*EXPECTED, "addc16", "dfilt"} == set(FUSED) == set(UNFUSED)
    for operation in FUSED.values():
        assert set(operation.dest) <= set(SAME)
        assert set("".join(operation.sources)) <= set(SAME)


def values(random, letter, count):
    """Random elements of a type, some of them special."""
    dtype = DTYPES[letter]
    if letter in SPECIAL:
        some = random.choice(SPECIAL[letter], count)
        usual = np.ldexp(random.normal(size=count), random.integers(-3, 4, count))
        return np.where(random.random(count) < 0.15, some, usual).astype(dtype)
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, count, dtype=dtype, endpoint=True)


def equal(left, right):
    """Equal bits, but that any NaN equals any."""
    if left.dtype.kind == "f":
        nan = np.isnan(left) & np.isnan(right)
        left, right = np.where(nan, 0, left), np.where(nan, 0, right)
    return np.array_equal(left.view(np.uint8), right.view(np.uint8))


def raw(operation, letter):
    """How a source is read: as it is, or for a move as bits."""
    return {"f": "w", "e": "H"}.get(letter, letter) if operation.move else letter


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_operation_on_three_vectors(name):
    operation = FUSED[name]
    for count in (3, 40):
        random, memory, operands = np.random.default_rng(count), Memory(b""), []
        with np.errstate(all="ignore"):
            sources = [values(random, letter, count) for letter in operation.sources]
            if name.startswith("fscale"):
                sources[1] = random.integers(-40, 40, count, dtype=np.int16)
            if name[:2] in ("sl", "sa"):
                sources[1] = random.integers(0, 20, count).astype(sources[1].dtype)
            for at, (letter, each) in enumerate(zip(operation.sources, sources, strict=True)):
                operand = Mem1d(1024 * (at + 1), count, BYTES[letter], BYTES[letter])
                memory.array(operand, count, letter)[:] = each
                operands.append((operand, raw(operation, letter)))
            dest = Mem1d(0, count, BYTES[operation.dest], BYTES[operation.dest])
            vector.compute(memory, operation, count, dest, operands, 0)
            expected = [EXPECTED[name](*each) for each in zip(*sources, strict=True)]
            assert equal(memory.array(dest, count, operation.dest), np.array(expected, DTYPES[operation.dest]))


def ran(*lines):
    """A PE after these lines."""
    return run(program(main(*lines)))[0]


def test_moves_keep_the_bits_of_a_nan():
    pe = ran(
        "pe.u32[0], pe.u16[10] = 0x7F800001, 0x7C01",
        'pe.run("fmovs", (Mem1d(4, 1, 4, 4), Mem1d(0, 1, 4, 4)))',
        'pe.run("fmovh", (Mem1d(22, 1, 2, 2), Mem1d(20, 1, 2, 2)))',
    )
    assert (pe.u32[1], pe.u16[11]) == (0x7F800001, 0x7C01)


@examples(150)
@given(st.integers(0, 2**32 - 1))
def test_one_rounding_of_a_multiply_add(seed):
    random = np.random.default_rng(seed)
    kind = f32 if seed % 2 else f16
    b, c = (kind(value) for value in random.normal(size=2))
    with np.errstate(all="ignore"):
        # Sums that almost cancel, and sums close to halfway between two floats, are where a second rounding shows.
        a = kind(-float(b) * float(c) * random.choice([1.0, 2.0**-12, 2.0**13, 1 + 2.0**-11]))
        assert kind(fused(float(a), float(b), float(c))) == multiply_add(a, b, c, kind)


def test_one_rounding_where_two_give_another_number():
    a, b, c = f32(2.0**24), f32(1.0 + 2.0**-23), f32(1.0 - 2.0**-24)
    wide = [np.array([each], np.float64) for each in (a, b, c)]
    assert f32(fused(float(a), float(b), float(c))) == f32(2**24 + 2)
    assert fused_arrays(*wide).astype(f32)[0] == f32(2**24 + 2)
    assert f32(UNFUSED["fmacs"].compute(float(a), float(b), float(c))) == f32(2**24)


# --- overlaps, strides, tensors ---


def layout(draw, size, count):
    """A vector or a tensor of at least `count` elements near address 600."""
    stride = draw(st.integers(-3, 3)) * size
    address = 600 + draw(st.integers(-20, 20)) * size
    if draw(st.booleans()):
        return Mem1d(address, count, stride, size)
    rows = draw(st.integers(1, 3))
    return Mem4d(address, (rows, -(-count // rows)), (draw(st.integers(-8, 8)) * size, stride), size)


def places(operand, count):
    if isinstance(operand, Mem1d):
        return [operand.address + k * operand.stride for k in range(count)]
    (_, columns), (outer, inner) = operand.extents, operand.strides
    return [operand.address + k // columns * outer + k % columns * inner for k in range(count)]


@examples(150)
@given(st.data(), st.sampled_from(["fadds", "fmacs", "faddh", "add16", "fmovs", "mov16"]), st.sampled_from([1, 7, 30]))
def test_overlapping_operands_are_done_one_element_after_the_other(data, name, count):
    operation = FUSED[name]
    size = BYTES[operation.dest]
    dest, *operands = (layout(data.draw, size, count) for _ in range(len(operation.sources) + 1))
    memory = Memory(b"")
    random = np.random.default_rng(count)
    memory.bytes[:1200] = values(random, operation.dest, 1200 // size).tobytes()
    expected = bytearray(memory.bytes)
    typed = np.frombuffer(expected, DTYPES[operation.dest])
    with np.errstate(all="ignore"):
        for to, *froms in zip(places(dest, count), *(places(each, count) for each in operands), strict=True):
            typed[to // size] = EXPECTED[name](*(typed[each // size] for each in froms))
        kind = raw(operation, operation.dest)
        vector.compute(memory, operation, count, dest, [(each, kind) for each in operands], 0)
        got = np.frombuffer(memory.bytes, DTYPES[operation.dest])
        assert equal(got[:300], typed[:300])


def test_a_stride_of_0_accumulates():
    pe = ran(
        "pe.f32[0] = 16777216.0",
        "for k in range(40): pe.f32[1 + k] = 1.0",
        'pe.run("fadds", (Mem1d(0, 40, 0, 4), Mem1d(0, 40, 0, 4), Mem1d(4, 40, 4, 4)))',
        "pe.f32[50] = 0.0",
        'pe.run("fadds", (Pointer(200), 0.5, Mem1d(4, 40, 4, 4)))',
        'pe.run("fmovs", (Pointer(204), Mem1d(200, 1, 4, 4)))',
        'pe.run("fmuls", (Pointer(208), Mem1d(4, 3, 4, 4), 7.0))',
    )
    # Each single sum is rounded: 2**24 + 1 is 2**24, forty times.
    assert pe.f32[0] == 16777216.0
    assert pe.f32[50:53].tolist() == [40.5, 40.5, 7.0]


def test_unaligned_elements():
    memory = Memory(bytes(range(200)))
    source, dest = Mem1d(2, 5, 4, 4), Mem1d(102, 5, 4, 4)
    vector.compute(memory, FUSED["mov32"], 5, dest, [(source, "w")], 0)
    assert memory.bytes[102:122] == bytes(range(2, 22))
    assert memory.load("i", 1) == 0x04030201
    memory.store("b", 3, -1)
    assert memory.i8[3] == -1


def test_a_sum_of_many_words_carries():
    pe = ran(
        "for k, v in enumerate((0xFFFF, 0xFFFF, 0, 7)): pe.u16[k] = v",
        "for k, v in enumerate((1, 0, 0, 8)): pe.u16[8 + k] = v",
        'pe.run("add16", (Mem1d(32, 1, 2, 2), Mem1d(0, 1, 2, 2), Mem1d(16, 1, 2, 2)))',
        'pe.run("addc16", (Mem1d(34, 3, 2, 2), Mem1d(2, 3, 2, 2), Mem1d(18, 3, 2, 2)))',
    )
    assert pe.u16[16:20].tolist() == [0, 0, 1, 15]


def test_faddhs_takes_its_sources_in_either_order():
    pe = ran(
        "pe.f32[0], pe.u16[4] = 1.25, 0x4000",
        "single, half = Mem1d(0, 1, 4, 4), Mem1d(8, 1, 2, 2)",
        'pe.run("faddhs", (Mem1d(16, 1, 4, 4), single, half))',
        'pe.run("faddhs", (Mem1d(20, 1, 4, 4), half, single))',
        'pe.run("faddhs", (Mem1d(24, 1, 4, 4), half, 0.5))',
    )
    assert pe.f32[4:7].tolist() == [3.25, 3.25, 2.5]


# --- cycles ---


def cost(name, dest, *sources, count=5124, arch=WSE2):
    operation = FUSED[name]
    letters = (operation.dest, *operation.sources)
    return vector.cycles(count, operation.width(arch), tuple(zip((dest, *sources), letters, strict=True)))


def vec(address, stride=4):
    return Mem1d(address, 5124, stride, 4)


def test_cycles_by_simd_widths_strides_and_banks():
    # Without a bank conflict a cycle an element of float32 (P08: 5,130 for 5,124, two looks at the clock in it), with
    # one two (P09: 10,254).
    assert cost("fmacs", vec(0), vec(0), vec(4), 2.0) == 5124
    assert cost("fmacs", vec(0), vec(0), vec(8), 2.0) == 10248
    assert cost("fadds", vec(0), vec(0), vec(4)) == 2562
    assert cost("fadds", vec(0), vec(0), vec(4), arch=WSE3) == 1281
    half = Mem1d(0, 5124, 2, 2)
    assert cost("faddh", half, half, Mem1d(4, 5124, 2, 2)) == 1281
    assert cost("faddh", half, half, half) == 2562
    assert cost("faddh", half, half, 1.0, arch=WSE3) == 641
    for stride, cycles in ((2, 1281), (16, 5124), (14, 2562), (8, 2562), (0, 1281)):
        assert cost("mov16", Mem1d(0, 5124, stride, 2), 5) == cycles
    assert cost("mov32", Mem4d(0, (2, 2562), (4, 16), 4), 5) == 5124
    assert cost("mov32", vec(0), 5, count=0) == 0


def test_banks_that_conflict_now_and_then():
    # Strides of 4 and 12 bytes: banks 2k and 6k modulo 4 are always equal; of 4 and 8, every other time.
    assert vector.conflicts(vec(0), vec(0, 12)) == 1.0
    assert vector.conflicts(vec(0), vec(0, 8)) == 0.5
    assert vector.conflicts(vec(0), vec(0, 0)) == 0.0
