"""Numbers of a PE: IEEE float16 and float32 rounded to nearest even, integers that wrap.

A Python float holds every float16 and float32, and rounding the float64 result of one +, -, * or / of two of them once
more gives the result that IEEE 754 asks of the short format: 53 bits are at least 2 * 24 + 2 (Figueroa, "When is double
rounding innocuous?", 1995).
"""

import ctypes
import struct

_half = struct.Struct("<e")


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


def wrap(value: int, bits: int, signed: bool) -> int:
    """`value` modulo 2**bits, as a signed or unsigned integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value
