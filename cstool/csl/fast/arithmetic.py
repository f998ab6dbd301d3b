"""Numbers of a PE in compiled code: `fabric.numbers`, `memory` and `scalar`, bit for bit.

One difference is left: of a float16 or float32 that is no number, the bits may differ where the reference lets NumPy
compute many elements at once. A NaN stays a NaN.
"""

import math

import numpy as np

from cstool.csl.fast.bits import (
    bits_double,
    bits_single,
    double_bits,
    get8,
    get16,
    get32,
    get_f32,
    get_i8,
    get_i16,
    get_i32,
    set8,
    set16,
    set32,
    set_f32,
    single_bits,
)
from cstool.csl.fast.instructions import LETTERS
from cstool.csl.fast.kernels import inner

B, _, H, SIGNED_H, W, SIGNED_W, F, E = range(len(LETTERS))
"""letters by number"""
_NAN = math.nan


@inner
def half_value(bits):  # type: ignore[no-untyped-def]
    """The float16 of the low 16 bits, as a float64."""
    exponent, mantissa = bits >> 10 & 31, bits & 0x3FF
    sign = (bits >> 15 & 1) << 63
    if exponent == 0:
        value = mantissa * 5.960464477539063e-08
        return -value if sign else value
    wide = 2047 if exponent == 31 else exponent + 1008
    return bits_double(sign | wide << 52 | mantissa << 42)


@inner
def half_bits(value):  # type: ignore[no-untyped-def]
    """The bits of a float64, rounded to float16."""
    bits = double_bits(value)
    sign = bits >> 63 & 1
    exponent, mantissa = (bits >> 52 & 0x7FF) - 1023, bits & 0xFFFFFFFFFFFFF
    if value != value:
        return sign << 15 | 0x7E00
    if exponent > 15:
        return sign << 15 | 0x7C00
    if exponent < -25:
        return sign << 15
    if exponent >= -14:
        shift, whole = 42, exponent + 15 << 52 | mantissa
    else:
        shift, whole = 28 - exponent, mantissa | 1 << 52
    found = whole >> shift
    rest, middle = whole & (1 << shift) - 1, 1 << shift - 1
    if rest > middle or (rest == middle and found & 1):
        found += 1
    return sign << 15 | found


@inner
def half(value):  # type: ignore[no-untyped-def]
    """A float64 rounded to float16, as a float64."""
    return half_value(half_bits(value))


@inner
def brain(value):  # type: ignore[no-untyped-def]
    """A float64 rounded to bfloat16, as a float64."""
    bits = single_bits(value)
    if math.isfinite(value):
        bits += 0x7FFF + (bits >> 16 & 1)
    return bits_single(bits & 0xFFFF0000)


@inner
def fused(a, b, c):  # type: ignore[no-untyped-def]
    """`a + b * c`, rounded to odd in float64."""
    product = b * c
    total = product + a
    back = total - product
    error = (product - (total - back)) + (a - back)
    if error == 0.0 or error != error:
        return total
    bits = double_bits(total)
    if not bits & 1:
        bits += 1 if (error > 0.0) == (total > 0.0) else -1
    return bits_double(bits)


@inner
def ratio(left, right):  # type: ignore[no-untyped-def]
    """`scalar.ratio`."""
    if right != 0.0:
        return left / right
    if left == 0.0 or left != left:
        return _NAN
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


@inner
def modulo(left, right):  # type: ignore[no-untyped-def]
    """`scalar.modulo`."""
    if right == 0.0 or math.isinf(left) or left != left or right != right:
        return _NAN
    return np.fmod(left, right)


@inner
def decode(letter, bits):  # type: ignore[no-untyped-def]
    """The scalar of some bits, as a type: `memory.decode`."""
    if letter == W:
        return bits & 0xFFFFFFFF
    if letter == SIGNED_W:
        return (bits & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
    if letter == F:
        return double_bits(bits_single(bits))
    if letter == E:
        return double_bits(half_value(bits))
    if letter == H:
        return bits & 0xFFFF
    if letter == SIGNED_H:
        return (bits & 0xFFFF ^ 0x8000) - 0x8000
    if letter == B:
        return bits & 0xFF
    return (bits & 0xFF ^ 0x80) - 0x80


@inner
def encode(letter, word):  # type: ignore[no-untyped-def]
    """The bits of a scalar, rounded or wrapped to a type: `memory.encode`."""
    if letter == F:
        return single_bits(bits_double(word))
    if letter == E:
        return half_bits(bits_double(word))
    if letter == W or letter == SIGNED_W:  # noqa: SIM109
        return word & 0xFFFFFFFF
    if letter == H or letter == SIGNED_H:  # noqa: SIM109
        return word & 0xFFFF
    return word & 0xFF


@inner
def read(f, letter, byte):  # type: ignore[no-untyped-def]
    """The scalar of a type at a byte of the state."""
    if letter == F:
        return double_bits(get_f32(f, byte))
    if letter == H:
        return get16(f, byte)
    if letter == W:
        return get32(f, byte)
    if letter == SIGNED_W:
        return get_i32(f, byte)
    if letter == E:
        return double_bits(half_value(get16(f, byte)))
    if letter == SIGNED_H:
        return get_i16(f, byte)
    if letter == B:
        return get8(f, byte)
    return get_i8(f, byte)


@inner
def write(f, letter, byte, word):  # type: ignore[no-untyped-def]
    """Write a scalar to a byte of the state, rounded or wrapped to a type."""
    if letter == F:
        set_f32(f, byte, bits_double(word))
    elif letter == E:
        set16(f, byte, half_bits(bits_double(word)))
    elif letter == W or letter == SIGNED_W:  # noqa: SIM109
        set32(f, byte, word)
    elif letter == H or letter == SIGNED_H:  # noqa: SIM109
        set16(f, byte, word)
    else:
        set8(f, byte, word)
