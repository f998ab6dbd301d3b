"""Numbers of a PE: IEEE float16 and float32 rounded to nearest even, integers that wrap.

A Python float holds every float16 and float32, and rounding the float64 result of one +, -, * or / of two of them once
more gives the result that IEEE 754 asks of the short format: 53 bits are at least 2 * 24 + 2 (Figueroa, "When is double
rounding innocuous?", 1995).

A fused multiply-add of float16 or float32 is computed in float64 and rounded to odd (Boldo and Melquiond, "Emulation of
FMA and correctly rounded sums", IEEE Transactions on Computers 57(4), 2008): one more rounding, to the short format,
then gives the correctly rounded result. The product is exact in float64 (2 * 24 bits fit 53).
"""

import ctypes
import math
import struct

import numpy as np
from numpy.typing import NDArray

_half = struct.Struct("<e")
_bits = memoryview(bytearray(8))
_as_float = _bits.cast("d")
_as_int = _bits.cast("Q")


def f32(value: float) -> float:
    """`value` rounded to float32; too large is infinite."""
    return ctypes.c_float(value).value


def f16(value: float) -> float:
    """`value` rounded to float16; too large is infinite."""
    try:
        packed = _half.pack(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return float(_half.unpack(packed)[0])


def bf16(value: float) -> float:
    """`value` rounded to bfloat16, the upper half of a float32; too large is infinite."""
    raw = struct.unpack("<I", struct.pack("<f", f32(value)))[0]
    if math.isfinite(value):
        raw += 0x7FFF + (raw >> 16 & 1)
    return float(struct.unpack("<f", struct.pack("<I", raw & 0xFFFF0000))[0])


def wrap(value: int, bits: int, signed: bool) -> int:
    """`value` modulo 2**bits, as a signed or unsigned integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def fused(a: float, b: float, c: float) -> float:
    """`a + b * c`, rounded to odd in float64."""
    product = b * c
    total = product + a
    back = total - product
    error = (product - (total - back)) + (a - back)
    if error == 0.0 or error != error:
        return total
    _as_float[0] = total
    if not _as_int[0] & 1:
        # The exact sum lies between two floats; the odd one of them says that it is neither, nor halfway.
        _as_int[0] += 1 if (error > 0) == (total > 0) else -1
        total = _as_float[0]
    return total


def fused_arrays(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """`a + b * c` element by element, rounded to odd in float64."""
    product = b * c
    total = np.asarray(product + a)
    back = total - product
    error = np.asarray((product - (total - back)) + (a - back))
    bits = total.view(np.int64)
    move = (error != 0.0) & ~np.isnan(error) & (bits & 1 == 0)
    bits[move] += np.where((error[move] > 0) == (total[move] > 0), 1, -1)
    return total
