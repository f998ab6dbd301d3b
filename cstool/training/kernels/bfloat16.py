"""bfloat16: the upper 16 bits of a float32, which NumPy has no dtype for; arrays of it are uint16.

Kernels read and write such arrays and arrays of floats by the same code: `widen` makes a number of an element,
`narrow` an element of a number. In between they compute in float32.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from cstool.foundation.compiled.intrinsics import FLOAT, INT32, Builder, Value, intrinsic_of
from cstool.training.kernels._jit import INLINED, elementwise
from cstool.training.kernels._vectors import emit_narrow
from cstool.training.kernels.gemm import Scratch

BFLOAT16 = np.dtype(np.uint16)
"""dtype of the arrays that hold bfloat16"""


def _number_type(element: Any) -> Any:
    return element if isinstance(element, types.Float) else types.float32


def _type_narrow(number: Any, array: Any) -> Any:
    if isinstance(array.dtype, types.Float):
        return number(number, array)
    return types.uint16(types.float32, array)


def _type_number_for(_value: Any, array: Any) -> Any:
    found = _number_type(array.dtype)
    return found(found, array)


def _emit_widen(b: Builder, signature: Any, element: Value) -> Value:
    if isinstance(signature.args[0], types.Float):
        return element
    return b.bitcast(b.shl(b.zext(element, INT32), ir.Constant(INT32, 16)), FLOAT)


def _emit_narrow(b: Builder, signature: Any, number: Value, _array: Value) -> Value:
    return number if isinstance(signature.return_type, types.Float) else emit_narrow(b, number)


widen: Any = intrinsic_of(1, lambda element: _number_type(element)(element), _emit_widen)
"""widen(element): its number, float32 of a bfloat16; to be called from compiled kernels"""
narrow: Any = intrinsic_of(2, _type_narrow, _emit_narrow)
"""narrow(number, array): the element of the array that is nearest to it, of two the even one; NaN stays NaN"""
number_for: Any = intrinsic_of(2, _type_number_for, lambda _b, _signature, number, _array: number)
"""number_for(value, array): the number in the precision of the kernels' arithmetic on the array"""


def numbers(x: Any, t: int, memory: Any) -> Any:  # noqa: ARG001
    """Row t of an array as floats: that row, or of bfloat16 a copy in `memory`. To be called from kernels."""


def target(y: Any, t: int, memory: Any) -> Any:  # noqa: ARG001
    """Return memory in which to compute row t: the row itself, or for bfloat16 `memory`, until `finish` is called."""


def finish(memory: Any, y: Any, t: int) -> None:  # noqa: ARG001
    """Round a row of `target` to bfloat16, where row t is bfloat16; do nothing where `target` is the row itself."""


@overload(numbers, jit_options=INLINED)
def _numbers(x, t, memory):  # type: ignore[no-untyped-def]  # noqa: ARG001
    if isinstance(x.dtype, types.Float):
        return lambda x, t, memory: x[t]

    def of_bfloat16(x, t, memory):  # type: ignore[no-untyped-def]
        row = x[t]
        for j in range(row.shape[0]):
            memory[j] = widen(row[j])
        return memory[: row.shape[0]]

    return of_bfloat16


@overload(target, jit_options=INLINED)
def _target(y, t, memory):  # type: ignore[no-untyped-def]  # noqa: ARG001
    if isinstance(y.dtype, types.Float):
        return lambda y, t, memory: y[t]
    return lambda y, t, memory: memory[: y.shape[1]]


@overload(finish, jit_options=INLINED)
def _finish(memory, y, t):  # type: ignore[no-untyped-def]  # noqa: ARG001
    if isinstance(y.dtype, types.Float):
        return lambda memory, y, t: None

    def to_bfloat16(memory, y, t):  # type: ignore[no-untyped-def]
        row = y[t]
        for j in range(row.shape[0]):
            row[j] = narrow(memory[j], y)

    return to_bfloat16


@elementwise
def convert(x, y):  # type: ignore[no-untyped-def]
    """Write (rows, columns) to another array of that shape, rounded to its precision; both may be float or bfloat16."""
    rows, columns = x.shape
    for i in range(rows):
        for j in range(columns):
            y[i, j] = narrow(widen(x[i, j]), y)


def float_dtype(x: np.ndarray) -> np.dtype:
    """The precision in which kernels compute with the numbers of an array."""
    return np.dtype(np.float32) if x.dtype == BFLOAT16 else x.dtype


def lend_bfloat16(scratch: Scratch, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Scratch memory for bfloat16 numbers."""
    size = math.prod(shape)
    return scratch(name, ((size + 1) // 2,)).view(BFLOAT16)[:size].reshape(shape)


def operand(x: np.ndarray, dtype: np.dtype, name: str, scratch: Scratch) -> np.ndarray:
    """A matrix in the precision of a product: itself, or rounded in scratch memory.

    Args:
        x: (rows, columns) float32 or bfloat16
        dtype: of the operands of the product
        name: of the scratch memory
    """
    if x.dtype == dtype:
        return x
    rounded = lend_bfloat16(scratch, name, x.shape)
    convert(x, rounded)
    return rounded


def widened(bits: np.ndarray) -> np.ndarray:
    """bfloat16 as float32 of the same shape, a copy."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrowed(numbers: np.ndarray) -> np.ndarray:
    """float32 of any shape as bfloat16, a copy."""
    rows = np.ascontiguousarray(numbers, np.float32).reshape(math.prod(numbers.shape[:-1]), numbers.shape[-1])
    bits = np.empty(rows.shape, BFLOAT16)
    convert(rows, bits)
    return bits.reshape(numbers.shape)
