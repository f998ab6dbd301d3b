"""Rows of e to the x in float64, rounded to float32: the bits of `math.exp`, vectorised.

A polynomial is near enough to the result to tell how that is rounded, but where it is next to the middle between two
float32 numbers. A row that has such a number is computed by `math.exp`: one of some thousands.

Source: the reduction by ln 2 in two parts of Cody and Waite, "Software manual for the elementary functions", 1980.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from cstool.foundation.compiled.intrinsics import INT64, intrinsic_of
from cstool.training.kernels._jit import exact_inlined, inlined

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUND = 1.5 * 2**52
"""x + _ROUND has the integer nearest to x in its low bits"""
_LEAST = -200.0
"""below: 0 in float32, and in float64 no exponent that overflows"""
_LEAST_EXACT = -700.0
"""below, results would soon be denormal in float64"""
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11 = (1 / math.factorial(n) for n in range(2, 12))
_DOUBT = 2.0**-43
"""bound of the relative error: the rest of the series is below 2^-47 of its sum"""

_double_of_bits: Any = intrinsic_of(
    1, lambda _bits: types.float64(types.int64), lambda b, _signature, bits: b.bitcast(bits, ir.DoubleType())
)
_bits_of_double: Any = intrinsic_of(
    1, lambda _number: types.int64(types.float64), lambda b, _signature, number: b.bitcast(number, INT64)
)


def _make_exp(compile_as: Any, least: float, name: str) -> Any:
    """Return e to the x, at most 0, with a relative error below `_DOUBT`: of `least` for less, NaN for NaN."""

    def near_exp(x):  # type: ignore[no-untyped-def]
        bounded = least if x < least else x
        rounded = bounded * _LOG2_E + _ROUND
        n = rounded - _ROUND
        r = bounded - n * _LN2_HIGH - n * _LN2_LOW
        p = _C11
        p = p * r + _C10
        p = p * r + _C9
        p = p * r + _C8
        p = p * r + _C7
        p = p * r + _C6
        p = p * r + _C5
        p = p * r + _C4
        p = p * r + _C3
        p = p * r + _C2
        p = p * r * r + r + 1.0
        # The shift drops all but the low bits of `rounded`.
        return p * _double_of_bits((_bits_of_double(rounded) + 1023) << 52)

    # Compiled forms are linked by name and types, whatever variables they capture.
    near_exp.__qualname__ = name
    return compile_as(near_exp)


_near_exp = _make_exp(inlined, _LEAST, "near_exp")
_exact_exp = _make_exp(exact_inlined, _LEAST_EXACT, "exact_exp")


@exact_inlined
def same_exp(x):  # type: ignore[no-untyped-def]
    """Return e to the x in float64, x at most 0: 0 below -700, NaN for NaN. To be called from `exact` kernels.

    The relative error is below 2^-43. Each step is rounded, so any CPU has the same bits.
    """
    return 0.0 if x < _LEAST_EXACT else _exact_exp(x)


@inlined
def exp_row(row, largest, unit, memory):  # type: ignore[no-untyped-def]
    """Turn numbers of a row into e to the (number - largest) * unit. To be called from kernels.

    Args:
        row: (n,) float32, none above `largest`, or NaN
        unit: float64
        memory: (n or more,) float32, apart from the row
    """
    for j in range(row.shape[0]):
        memory[j] = row[j]
    doubts = 0
    for j in range(row.shape[0]):
        found = _near_exp((memory[j] - largest) * unit)
        doubts |= np.float32(found - found * _DOUBT) != np.float32(found + found * _DOUBT)
        row[j] = found
    if doubts:
        for j in range(row.shape[0]):
            row[j] = math.exp((memory[j] - largest) * unit)
