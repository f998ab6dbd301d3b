"""Simple work on arrays: NumPy's functions, which while a thread records become kernels with the same bits.

Arrays are float32, of copies any. The last axis of each is contiguous; others may lie any distance apart.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]

from cstool.foundation.compiled.intrinsics import BYTE, FLOAT, Builder, Value, intrinsic_of, pointer_to
from cstool.training.kernels import blas
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels._vectors import FLOAT_BYTES
from cstool.training.kernels.recording import (
    NotRecordableError,
    Recording,
    address_of,
    needs_interpreter,
    recording,
)

Array = np.ndarray[Any, Any]


_floats = pointer_to(FLOAT, types.float32)
_bytes = pointer_to(BYTE, types.uint8)


@elementwise
def _add_rows(out, out_step, x, x_step, y, y_step, rows, width):  # type: ignore[no-untyped-def]
    for i in range(rows):
        total = carray(_floats(out + i * out_step), (width,))
        left = carray(_floats(x + i * x_step), (width,))
        right = carray(_floats(y + i * y_step), (width,))
        for j in range(width):
            total[j] = left[j] + right[j]


@elementwise
def _copy_rows(out, out_step, x, x_step, rows, width):  # type: ignore[no-untyped-def]
    for i in range(rows):
        copied = carray(_bytes(out + i * out_step), (width,))
        row = carray(_bytes(x + i * x_step), (width,))
        for j in range(width):
            copied[j] = row[j]


@elementwise
def _fill_rows(out, out_step, rows, width, number):  # type: ignore[no-untyped-def]
    for i in range(rows):
        row = carray(_floats(out + i * out_step), (width,))
        for j in range(width):
            row[j] = number


@elementwise
def _sum_rows(out, x, x_step, rows, width):  # type: ignore[no-untyped-def]
    total = carray(_floats(out), (width,))
    for j in range(width):
        total[j] = np.float32(0)
    for i in range(rows):
        row = carray(_floats(x + i * x_step), (width,))
        for j in range(width):
            total[j] += row[j]


@elementwise
def _dot_rows(dot, x, y, rows, heads, width, out):  # type: ignore[no-untyped-def]
    for i in range(rows):
        for h in range(heads):
            at = FLOAT_BYTES * (i * heads + h) * width
            # NumPy adds the parts of BLAS, here one, in float64.
            out[h, i] = _dot(dot, width, x + at, 1, y + at, 1)


def _emit_dot(b: Builder, _signature: Any, address: Value, *arguments: Value) -> Value:
    words = [ir.IntType(64)] * len(arguments)
    return b.call(b.inttoptr(address, ir.FunctionType(FLOAT, words).as_pointer()), arguments)


_dot = intrinsic_of(6, lambda *_arguments: types.float32(*[types.int64] * 6), _emit_dot)


def _rows(out: Array, *others: Array) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Cut arrays of one shape into pieces of rows: address and step of each, and the shape of the piece.

    Raises:
        NotRecordableError: a last axis is not contiguous
    """
    arrays = [out, *(np.broadcast_to(x, out.shape) for x in others)]
    if out.size == 0:
        return
    width = out.shape[-1]
    if any(x.strides[-1] != x.itemsize for x in arrays) and width > 1:
        raise NotRecordableError("the last axis of an array is not contiguous")
    for place in np.ndindex(out.shape[:-2]):
        pieces = [x[place] for x in arrays]
        steps = [piece.strides[0] if piece.ndim > 1 else 0 for piece in pieces]
        shape = (len(pieces[0]) if out.ndim > 1 else 1, width)
        addresses = [address_of(piece) for piece in pieces]
        yield [word for pair in zip(addresses, steps, strict=True) for word in pair], shape


def add(x: Array, y: Array, out: Array) -> None:
    """Compute out = x + y, which may be one of them; shapes are broadcast."""
    into = recording()
    if into is None:
        np.add(x, y, out=out)
        return
    _check_floats(x, y, out)
    into.kept += [x, y, out]
    for words, shape in _rows(out, x, y):
        _add_rows(*words, *shape)


def copy(x: Array, out: Array) -> None:
    """Copy x, of the same dtype, to `out`; its shape is broadcast."""
    into = recording()
    if into is None:
        np.copyto(out, x)
        return
    if x.dtype != out.dtype:
        raise NotRecordableError("a copy changes the dtype")
    into.kept += [x, out]
    for words, (rows, width) in _rows(out, x):
        _copy_rows(*words, rows, width * out.itemsize)


def fill(out: Array, number: float) -> None:
    """Set all elements to one number."""
    into = recording()
    if into is None:
        out[...] = number
        return
    _check_floats(out)
    into.kept.append(out)
    for words, shape in _rows(out):
        _fill_rows(*words, *shape, np.float32(number))


def sum_rows(x: Array, out: Array) -> None:
    """Add up rows, (T, n) to (n,), in their order."""
    into = recording()
    if into is None or x.shape[1] == 1:
        # NumPy adds a single column pairwise.
        needs_interpreter()
        np.add.reduce(x, axis=0, out=out)
        return
    _check_floats(x, out)
    into.kept += [x, out]
    ((words, shape),) = _rows(x)
    _sum_rows(address_of(out), *words, *shape)


def sum_over(x: Array, axis: int, out: Array) -> None:
    """Add up arrays along an axis that is none of the last two, in their order; `out` has that axis with length 1."""
    into = recording()
    if into is None:
        np.add.reduce(x, axis=axis, keepdims=True, out=out)
        return
    parts = np.split(x, x.shape[axis], axis)
    fill(out, 0)
    for part in parts:
        add(out, part, out)


def dot_heads(x: Array, y: Array, heads: int, out: Array) -> None:
    """Write the product of each head of each row of x and y, both contiguous (T, heads * D), to `out`, (heads, T)."""
    into = recording()
    by_head = (len(x), heads, x.shape[1] // heads)
    if into is None:
        np.vecdot(x.reshape(by_head), y.reshape(by_head), out=out.T)
        return
    if not (x.flags.c_contiguous and y.flags.c_contiguous):
        raise NotRecordableError("rows of heads are not contiguous")
    _check_floats(x, y, out)
    into.kept += [x, y]
    addresses = (address_of(array) for array in (x, y))
    _dot_rows(blas.function("sdot"), *addresses, *by_head, out)


def log(x: Array, out: Array) -> None:
    """Compute natural logarithms of contiguous arrays."""
    if (into := recording()) is None:
        np.log(x, out=out)
        return
    _check_floats(x, out)
    _record_loop(into, np.log, (x, out), (x.itemsize, out.itemsize), x.size)


def sum_all(x: Array, out: Array) -> None:
    """Add up all numbers of x, contiguous (n,) float, to `out`, (1,) of that dtype, in NumPy's order."""
    if (into := recording()) is None:
        np.sum(x, out=out[0, ...])
        return
    copy(np.zeros(1, out.dtype), out)
    _record_loop(into, np.add, (out, x, out), (0, x.itemsize, 0), x.size)


_LENT = b"numpy_1.24_ufunc_call_info"
_information = ctypes.pythonapi.PyCapsule_GetPointer
_information.restype, _information.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _LoopInformation(ctypes.Structure):
    """See the documentation of `numpy.ufunc._get_strided_loop`."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("loop", "context", "data")),
        *((name, ctypes.c_bool) for name in ("needs_interpreter", "sets_no_flags")),
    )


def _record_loop(into: Recording, function: np.ufunc, arrays: Sequence[Array], steps: Sequence[int], size: int) -> None:
    """Write down a call of NumPy's own loop of a function: another loop would have other bits.

    Args:
        arrays: operands and result
        steps: from one element to the next of each [bytes]

    Raises:
        NotRecordableError: this NumPy does not lend its loops
    """
    try:
        _, lent = function._resolve_dtypes_and_context((*(x.dtype for x in arrays[:-1]), None))  # type: ignore[attr-defined]
        function._get_strided_loop(lent)  # type: ignore[attr-defined]
        found = _LoopInformation.from_address(_information(lent, _LENT))
    except (AttributeError, ValueError) as error:
        raise NotRecordableError("this NumPy does not lend its loops") from error
    if found.needs_interpreter:
        raise NotRecordableError("this loop of NumPy needs the interpreter")
    words = [np.array(words, np.int64) for words in ([address_of(x) for x in arrays], [size], steps)]
    into.kept += [lent, *arrays, *words]
    into.function(found.loop, (found.context, *map(address_of, words), found.data or 0), returns_status=True)


def _check_floats(*arrays: Array) -> None:
    if any(x.dtype != np.float32 for x in arrays):
        raise NotRecordableError("arrays are not float32")
