"""Activation functions: one row for each, with its formula, its cost and its names elsewhere.

A formula is plain Python that kernels compile. It has u and an array of the type of u, from whose `dtype` it takes its
numbers, and gives the value and the slope at u. `exp`, `tanh`, `sigmoid` and `normal` become polynomials in a kernel
of float32. This module imports nothing heavy: checking a params file asks it for names.

Source: Hendrycks, Gimpel, "Gaussian error linear units (GELUs)", 2016: gelu is the exact form with the error function,
gelu_new that with tanh, quick_gelu that with the logistic function, and silu the plain one of the latter; So et al.,
"Primer: searching for efficient transformers for language modeling", 2021: squared_relu.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EXPONENTIAL_OPS = 8
"""vector instructions of an exponential: range reduction (2), a polynomial of degree 5, the exponent put in place"""
_NONLINEAR_OPS = EXPONENTIAL_OPS + 6
"""likewise of a function with one exponential: the exponential, a reciprocal by two Newton steps (4), two products"""

_TANH_LINEAR, _TANH_CUBIC = 2.0 * math.sqrt(2.0 / math.pi), 0.044715
"""gelu_new: (1 + tanh(z)) / 2 is the logistic function of 2 z; 2 z = linear * (u + cubic * u^3)"""
_QUICK = 1.702


def exp(x: float) -> float:
    """E to the x; in float32 with a relative error below 2e-7, 0 below -86.6, infinity above 88.7, NaN for NaN.

    Source: Cephes `expf` (polynomial and two-part ln 2).
    """
    return math.exp(x)


def tanh(x: float) -> float:
    """Hyperbolic tangent; in float32 with a relative error below 3e-7.

    Source: Cephes `tanhf`.
    """
    return math.tanh(x)


def sigmoid(x: float) -> float:
    """Logistic function 1 / (1 + exp(-x)); in float32 its relative error is below 3e-7 from -87 on, 0 below -88.7."""
    return 1.0 / (1.0 + math.exp(-x))


def normal(x: float) -> tuple[float, float]:
    """Cumulative distribution and density of the standard normal distribution at x.

    In float32 their relative error is below 8e-7 for x between -4 and 4, mostly from rounding x^2 / 2, and half of
    it between -2 and 2.

    Source: polynomial in t = 1 / (1 + 0.28 |x|), least maximum relative error (1.7e-7) to Phi(-|x|) exp(x^2 / 2) / t.
    """
    return 0.5 * math.erfc(-x * math.sqrt(0.5)), math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Activation:
    """A function of one number.

    Args:
        name: in ops, and of the kernels
        formula: (u, array of the type of u) -> value and slope at u
        ops: vector instructions per element on the wafer
        vendor_names: values of the vendor's `nonlinearity` that mean it
        gate: value of `nonlinearity` for a layer with this function as the gate; None where it cannot be one
        hf_names: in a config.json of Hugging Face's library; the first is written
    """

    name: str
    formula: Callable[[Any, Any], tuple[Any, Any]]
    ops: int
    vendor_names: tuple[str, ...]
    gate: str | None = None
    hf_names: tuple[str, ...] = ()


def _gelu(u: Any, _like: Any) -> tuple[Any, Any]:
    below, density = normal(u)
    return u * below, below + u * density


def _relu(u: Any, like: Any) -> tuple[Any, Any]:
    zero = like.dtype.type(0)
    # u - u: 0, or NaN where u is not finite
    return (zero if u < zero else u), (like.dtype.type(1) if u > zero else u - u)


def _silu(u: Any, like: Any) -> tuple[Any, Any]:
    one = like.dtype.type(1)
    s = sigmoid(u)
    return u * s, s * (one + u * (one - s))


def _squared_relu(u: Any, like: Any) -> tuple[Any, Any]:
    zero = like.dtype.type(0)
    positive = zero if u < zero else u
    return positive * positive, positive + positive


def _gelu_new(u: Any, like: Any) -> tuple[Any, Any]:
    one = like.dtype.type(1)
    linear = like.dtype.type(_TANH_LINEAR)
    cubic = like.dtype.type(_TANH_LINEAR * _TANH_CUBIC)
    square = u * u
    s = sigmoid(u * (linear + cubic * square))
    return u * s, s * (one + u * (one - s) * (linear + like.dtype.type(3) * cubic * square))


def _quick_gelu(u: Any, like: Any) -> tuple[Any, Any]:
    one = like.dtype.type(1)
    steep = like.dtype.type(_QUICK) * u
    s = sigmoid(steep)
    return u * s, s * (one + steep * (one - s))


def _tanh(u: Any, like: Any) -> tuple[Any, Any]:
    value = tanh(u)
    return value, like.dtype.type(1) - value * value


def _linear(u: Any, like: Any) -> tuple[Any, Any]:
    return u, like.dtype.type(1)


_ROWS = (
    Activation("gelu", _gelu, _NONLINEAR_OPS, ("gelu",), "geglu", ("gelu",)),
    Activation("relu", _relu, 2, ("relu",), "reglu", ("relu",)),
    Activation("silu", _silu, _NONLINEAR_OPS, ("silu", "swish"), "swiglu", ("silu", "swish")),
    Activation("squared_relu", _squared_relu, 2, ("squared_relu",), hf_names=("relu2",)),
    Activation(
        "gelu_new",
        _gelu_new,
        _NONLINEAR_OPS,
        ("gelu_new", "gelu_fast"),
        "geglu_new",
        ("gelu_new", "gelu_fast", "gelu_pytorch_tanh"),
    ),
    Activation("quick_gelu", _quick_gelu, _NONLINEAR_OPS, ("quick_gelu",), hf_names=("quick_gelu",)),
    Activation("tanh", _tanh, _NONLINEAR_OPS, ("tanh",), hf_names=("tanh",)),
    Activation("linear", _linear, 2, ("linear",), "liglu", ("linear",)),
)
ACTIVATIONS = {row.name: row for row in _ROWS}
"""by name, in the order in which messages list them"""
