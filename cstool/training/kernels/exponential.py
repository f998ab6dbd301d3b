"""Functions made of exp that LLVM can vectorise: Numba without SVML calls a scalar one per element.

To be called from compiled kernels only. In float32 they are polynomials; in float64, which only tests use, the
functions of `math`. They are compiled without the freedom to reorder, also in kernels that have it: their
accuracy depends on the order.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from cstool.foundation.compiled.intrinsics import FLOAT, INT32, Builder, Value, intrinsic_of
from cstool.model.activations import exp, normal, sigmoid, tanh
from cstool.training.kernels._jit import INLINED, Kernel, inlined
from cstool.training.kernels._vectors import LANES, VECTOR, every, multiply_add

_f: Any = np.float32
_i = np.int32

_LOG2_E = _f(1.44269504)
_LN2_HIGH, _LN2_LOW = _f(0.693359375), _f(-2.12194440e-4)
_ROUND = _f(1.5 * 2**23)
"""x + _ROUND has the integer nearest to x in its low bits"""
_TERMS: tuple[Any, ...] = tuple(
    map(_f, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1))
)
"""of a polynomial, the highest power first"""
_SMALLEST, _LARGEST = _f(-86.6), _f(88.72283)
"""below: 0, before results are denormal; above: infinity"""


def maximum(x: float, y: float) -> float:
    """Return the larger, NaN if either is; a loop of it vectorises, which a comparison does not if NaN must survive."""
    return math.nan if math.isnan(x) or math.isnan(y) else max(x, y)


def _emit_float_of_bits(b: Builder, _signature: Any, bits: Value) -> Value:
    return b.bitcast(bits, FLOAT)


def _emitbits_of_float(b: Builder, _signature: Any, number: Value) -> Value:
    return b.bitcast(number, INT32)


def _emit_maximum(b: Builder, _signature: Any, x: Value, y: Value) -> Value:
    kind = ir.FunctionType(x.type, [x.type, x.type])
    return b.call(b.module.declare_intrinsic("llvm.maximum", [x.type], kind), [x, y])


_float_of_bits: Any = intrinsic_of(1, lambda _bits: types.float32(types.int32), _emit_float_of_bits)
bits_of_float: Any = intrinsic_of(1, lambda _number: types.int32(types.float32), _emitbits_of_float)
_llvm_maximum: Any = intrinsic_of(2, lambda x, _y: x(x, x), _emit_maximum)


def _exp_float32(x: Any) -> Any:
    rounded = x * _LOG2_E + _ROUND
    n = rounded - _ROUND
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = _TERMS[0]
    p = p * r + _TERMS[1]
    p = p * r + _TERMS[2]
    p = p * r + _TERMS[3]
    p = p * r + _TERMS[4]
    p = p * r + _TERMS[5]
    p = p * r * r + r + _f(1.0)
    # 2^n as 2 x 2^(n-1), since 2^128 is no float32. The shift drops all but the low bits of `rounded`.
    y = (p + p) * _float_of_bits(_i(_i(bits_of_float(rounded) + _i(126)) << _i(23)))
    y = _f(0.0) if x < _SMALLEST else y
    return _f(np.inf) if x > _LARGEST else y


def emit_exp(b: Builder, x: Value) -> Value:
    """Return exp of a vector of 16 floats, at most 88 each; NaN stays NaN. Steps are those of `exp`."""
    rounded = multiply_add(b, x, every(_LOG2_E), every(_ROUND))
    n = b.fsub(rounded, every(_ROUND))
    r = multiply_add(b, n, every(-_LN2_LOW), multiply_add(b, n, every(-_LN2_HIGH), x))
    p = every(_TERMS[0])
    for term in _TERMS[1:]:
        p = multiply_add(b, p, r, every(term))
    p = b.fadd(multiply_add(b, b.fmul(p, r), r, r), every(1.0))
    whole = ir.VectorType(INT32, LANES)
    exponent = b.add(b.bitcast(rounded, whole), ir.Constant(whole, [127] * LANES))
    power = b.bitcast(b.shl(exponent, ir.Constant(whole, [23] * LANES)), VECTOR)
    return b.select(b.fcmp_ordered("<", x, every(_SMALLEST)), every(0.0), b.fmul(p, power))


def _normal_float32(x: Any) -> Any:
    bell = exp(_f(-0.5) * x * x)
    t = _f(1.0) / (_f(1.0) + _f(0.28) * abs(x))
    p = _f(0.024719965794675246)
    p = p * t + _f(-0.09359310001794212)
    p = p * t + _f(0.09242808878019636)
    p = p * t + _f(-0.0064491644769578155)
    p = p * t + _f(0.0727750089064984)
    p = p * t + _f(0.08363079071160809)
    p = p * t + _f(0.10308466484240159)
    p = p * t + _f(0.11169980267897807)
    p = p * t + _f(0.11170385755342858)
    tail = bell * (p * t)
    return (_f(1.0) - tail if x > _f(0.0) else tail), bell * _f(0.3989422804)


def _sigmoid_float32(x: Any) -> Any:
    return _f(1.0) / (_f(1.0) + exp(-x))


def _tanh_float32(x: Any) -> Any:
    z = x * x
    p = _f(-5.70498872745e-3)
    p = p * z + _f(2.06390887954e-2)
    p = p * z + _f(-5.37397155531e-2)
    p = p * z + _f(1.33314422036e-1)
    p = p * z + _f(-3.33332819422e-1)
    near = p * z * x + x
    far = _f(1.0) - _f(2.0) / (exp(_f(2.0) * abs(x)) + _f(1.0))
    far = -far if x < _f(0.0) else far
    return near if abs(x) < _f(0.625) else far


def _exp_float64(x: Any) -> Any:
    return math.exp(x)


def _normal_float64(x: Any) -> Any:
    return 0.5 * math.erfc(-x * math.sqrt(0.5)), math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _sigmoid_float64(x: Any) -> Any:
    return 1.0 / (1.0 + math.exp(-x))


def _tanh_float64(x: Any) -> Any:
    return math.tanh(x)


def _maximum_llvm(x: Any, y: Any) -> Any:
    return _llvm_maximum(x, y)


def _compile_as(function: Kernel, of_float32: Kernel, of_float64: Kernel) -> None:
    """Have kernels call a compiled form of a function, by the type of its argument."""

    @overload(function, jit_options=INLINED)
    def _by_type(x: Any) -> Kernel:
        return of_float32 if x == types.float32 else of_float64


_compile_as(exp, _exp_float32, _exp_float64)
_compile_as(normal, _normal_float32, _normal_float64)
_compile_as(sigmoid, _sigmoid_float32, _sigmoid_float64)
_compile_as(tanh, _tanh_float32, _tanh_float64)


@overload(maximum, jit_options=INLINED)
def _maximum(x: Any, y: Any) -> Kernel | None:
    return _maximum_llvm if x == y else None


@inlined
def bent_tanh(given, slope):  # type: ignore[no-untyped-def]
    """Return tanh(given * slope), NaN where `given` is infinite: a cap hides no overflow."""
    return tanh(given * slope) + (given - given)
