"""The functions of NumPy's BLAS by their addresses, for records of products; the same code that NumPy calls."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from cstool.training.kernels.recording import NotRecordableError, Recording, address_of

Array = np.ndarray[Any, Any]
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
"""constants of CBLAS"""
_MOST = 2**31 - 1
"""largest size and stride that NumPy hands to BLAS [elements]"""


@cache
def _library() -> ctypes.CDLL | None:
    """OpenBLAS with 64-bit integers as NumPy's wheels bring it; None where NumPy has another BLAS."""
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    for path in folder.glob("libscipy_openblas64_*"):
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            return None
    return None


@cache
def function(name: str) -> int:
    """Address of a function of CBLAS, such as "sgemm".

    Raises:
        NotRecordableError: NumPy's BLAS is not the one of its wheels
    """
    found = getattr(_library(), f"scipy_cblas_{name}64_", None)
    address = None if found is None else ctypes.cast(found, ctypes.c_void_p).value
    if address is None:
        raise NotRecordableError("NumPy has another BLAS than its wheels")
    return address


def record_product(into: Recording, a: Array, b: Array, out: Array) -> None:
    """Write down a @ b as NumPy's `matmul` hands it to BLAS.

    Source: NumPy 2, `numpy/_core/src/umath/matmul.c.src`.

    Raises:
        NotRecordableError: NumPy computes it by another function, or copies an operand before
    """
    if a.ndim > 2 or b.ndim > 2:  # noqa: PLR2004
        batch = out.shape[:-2]
        a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
        for place in np.ndindex(batch):
            record_product(into, a[place], b[place], out[place])
        return
    (rows, inner), columns = a.shape, b.shape[1]
    if min(rows, inner, columns) < 2:  # noqa: PLR2004
        raise NotRecordableError("a product has a vector")
    sgemm = function("sgemm")
    of_a, of_b, of_out = _layout(a), _layout(b), _layout(out)
    is_by_itself = address_of(a) == address_of(b) and rows == columns and of_a[0] != of_b[0]
    if of_out[0] != _PLAIN or is_by_itself:
        raise NotRecordableError("NumPy computes a product by another function")
    into.kept += [a, b, out]
    operands = (address_of(a), of_a[1], address_of(b), of_b[1])
    sizes = (rows, columns, inner)
    one, zero = np.float32(1), np.float32(0)
    into.function(sgemm, (_ROW_MAJOR, of_a[0], of_b[0], *sizes, one, *operands, zero, address_of(out), of_out[1]))


def _layout(x: Array) -> tuple[int, int]:
    """Whether BLAS gets a matrix transposed, and the distance of its rows, or else columns [elements].

    Raises:
        NotRecordableError: neither lies as BLAS wants it
    """
    if x.dtype == np.float32:
        for kind, matrix in ((_PLAIN, x), (_TRANSPOSED, x.T)):
            step, rest = divmod(matrix.strides[0], x.itemsize)
            if matrix.strides[1] == x.itemsize and not rest and matrix.shape[1] <= step <= _MOST:
                return kind, step
    raise NotRecordableError("BLAS takes no matrix that lies like this")
