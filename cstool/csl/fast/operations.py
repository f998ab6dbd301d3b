"""Vector operations for compiled code: `fabric.operations` as numbers, tables, and one function of scalars.

A scalar is an int64: an integer, or the bits of a float64. Letters are numbers, see `instructions.LETTERS`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import WSE2, WSE3
from cstool.csl.fabric.operations import BYTES, FUSED, SATURATED, Operation
from cstool.csl.fast.arithmetic import fused, half
from cstool.csl.fast.bits import bits_double, double_bits, single
from cstool.csl.fast.instructions import LETTERS
from cstool.csl.fast.kernels import inner

_OPERATIONS: list[Operation] = [*FUSED.values(), *SATURATED.values()]
NAMES = tuple(operation.name for operation in _OPERATIONS)
"""names of operations by number: all, then the saturating ones"""
NUMBERS = {operation.name: number for number, operation in enumerate(FUSED.values())}
"""numbers by name"""
MAP = len(NAMES)
"""number of `@map`"""

(ABS, ADD, SUB, MUL, MAX, SAME, NEG, NORM, SCALE, TO_INT16, FROM_INT16, IADD, ISUB, AND, OR, XOR, SLL, SLR, SAR,
 POPCNT, CLZ, CTZ, ADDC, FMA16, FMA32, FMA_WIDE, SATADD, SATSUB) = range(28)  # fmt: skip
"""acts of operations on scalars"""


def _act(number: int, operation: Operation) -> int:
    name = operation.name
    if number >= len(FUSED):
        return SATADD if name == "add16" else SATSUB
    acts = {
        "add16": IADD, "sub16": ISUB, "and16": AND, "or16": OR, "xor16": XOR, "sll16": SLL, "slr16": SLR,
        "sar16": SAR, "popcnt": POPCNT, "clz": CLZ, "ctz": CTZ, "addc16": ADDC, "fmach": FMA16, "fmacs": FMA32,
        "fmachs": FMA_WIDE, "faddhs": ADD,
    }  # fmt: skip
    if name in acts:
        return acts[name]
    for begin, act in (
        ("fabs", ABS), ("fadd", ADD), ("fsub", SUB), ("fmul", MUL), ("fmax", MAX), ("fneg", NEG), ("fnorm", NORM),
        ("fscale", SCALE), ("fh2xp16", TO_INT16), ("fs2xp16", TO_INT16), ("xp162f", FROM_INT16),
    ):  # fmt: skip
        if name.startswith(begin):
            return act
    return SAME


def _letters(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def _table() -> NDArray[np.int64]:
    rows = []
    for number, operation in enumerate(_OPERATIONS):
        sources = _letters("".join(operation.sources))
        dest = LETTERS.index(operation.dest) if operation.dest else -1
        widths = [operation.width(arch) for arch in (WSE2, WSE3)]
        flags = [operation.move, operation.reduces, operation.name == "faddhs"]
        flags += [operation.name == "add16" and operation.dest == "H"]
        padded = sources + [-1] * (3 - len(sources))
        rows.append([_act(number, operation), dest, len(sources), *padded, *widths, *map(int, flags)])
    rows.append([SAME, -1, 0, -1, -1, -1, 1, 1, 0, 0, 0, 0])
    return np.array(rows, np.int64)


TABLE = _table()
ACT, DEST, COUNT, SOURCES = range(4)
WIDTHS = 6
MOVE, REDUCES, EITHER, CARRIES = range(8, 12)
"""columns: `ABS`.., letter of the destination (-1: none), sources, their letters (three columns), elements a cycle
(of WSE-2, of WSE-3), whether it moves bits, reduces, takes its sources in either order, sets the carry"""

SIZES = np.array([BYTES[letter] for letter in LETTERS], np.int64)
"""bytes of an element, by letter"""
RAW = np.array([LETTERS.index({1: "B", 2: "H", 4: "w"}[BYTES[letter]]) for letter in LETTERS], np.int64)
"""the integer of the same size, by letter"""
SATURATED_ADD, SATURATED_SUB = len(FUSED), len(FUSED) + 1
ADD16, SUB16, DFILT = NUMBERS["add16"], NUMBERS["sub16"], NUMBERS["dfilt"]


@inner
def compute(act, unfused, a, b, c, carry):  # type: ignore[no-untyped-def]
    """The result of one scalar of each source, not yet rounded or wrapped."""
    if act <= FROM_INT16 or FMA16 <= act <= FMA_WIDE:
        return _compute_float(act, unfused, a, b, c)
    return _compute_int(act, a, b, carry)


@inner
def _compute_float(act, unfused, a, b, c):  # type: ignore[no-untyped-def]
    if act == SAME:
        return a
    if act == FROM_INT16:
        return double_bits(float(a))
    x = bits_double(a)
    if act == TO_INT16:
        return 0 if x != x else int(max(-32768.0, min(32767.0, x)))
    if act == SCALE:
        return double_bits(_scale(x, b))
    y = bits_double(b)
    if act == ADD:
        x = x + y
    elif act == SUB:
        x = x - y
    elif act == MUL:
        x = x * y
    elif act == MAX:
        x = x if y != y or x >= y else y
    elif act == ABS:
        x = abs(x)
    elif act == NEG:
        x = -x
    elif act == NORM:
        x = _normal(x)
    elif unfused and act == FMA32:
        x = x + single(y * bits_double(c))
    elif unfused and act == FMA16:
        x = x + half(y * bits_double(c))
    else:
        x = fused(x, y, bits_double(c))
    return double_bits(x)


@inner
def _scale(x, n):  # type: ignore[no-untyped-def]
    return x if x == 0.0 or not math.isfinite(x) else math.ldexp(x, int(max(-4000, min(4000, n))))


@inner
def _normal(x):  # type: ignore[no-untyped-def]
    return x if x == 0.0 or not math.isfinite(x) else 2.0 * math.frexp(x)[0]


@inner
def _compute_int(act, a, b, carry):  # type: ignore[no-untyped-def]
    if act == IADD:
        return a + b
    if act == ISUB:
        return a - b
    if act == AND:
        return a & b
    if act == OR:
        return a | b
    if act == XOR:
        return a ^ b
    if act == SLL:
        return a << b if 0 <= b < 16 else 0
    if act == SLR:
        return a >> b if 0 <= b < 16 else 0
    if act == SAR:
        return a >> (b if 0 <= b < 16 else 15)
    if act == ADDC:
        return a + b + carry
    if act == SATADD:
        return max(-32768, min(32767, a + b))
    if act == SATSUB:
        return max(-32768, min(32767, a - b))
    return _count_bits(act, a)


@inner
def _count_bits(act, a):  # type: ignore[no-untyped-def]
    ones = length = 0
    rest = abs(a)
    while rest:
        ones += rest & 1
        length += 1
        rest >>= 1
    if act == POPCNT:
        return ones
    if act == CLZ:
        return 16 - length
    zeros = 0
    while zeros < 16 and not a >> zeros & 1:
        zeros += 1
    return zeros
