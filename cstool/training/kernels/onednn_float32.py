"""Products of float32 matrices by `dnnl_sgemm` of oneDNN, called by ctypes.

Which shapes it multiplies faster than NumPy's BLAS depends on the CPU, so a run measures both (`fastest.py`). A call is
one product of two matrices in the calling thread. It shares nothing with other threads.

Source: `oneapi/dnnl/dnnl.h` of oneDNN 3.2. Matrices lie row by row; a leading dimension is the distance between rows
[elements].
"""

import ctypes
import math
from pathlib import Path

import numpy as np

from cstool.foundation.errors import ClusterError
from cstool.training.kernels import elementary
from cstool.training.kernels.gemm import NUMPY, Array, addresses
from cstool.training.kernels.onednn import Library
from cstool.training.kernels.recording import recording

SMALL_FLOPS = 4_000_000
"""of a product of two matrices; smaller ones are NumPy's. Such a product takes 40 microseconds, the call by ctypes 5 of
them (measured on an AMD Zen 4: above it oneDNN is faster in any shape, below half of it in few)"""
_BYTES = 4
_POINTER_AT = object.__basicsize__
"""place in an array of the pointer to its elements [bytes]: the first member of NumPy's struct `PyArrayObject`"""
_Size, _Pointer = ctypes.c_int64, ctypes.c_void_p
_ARGUMENTS = (
    *(ctypes.c_char, ctypes.c_char),  # orders of A and B
    *(_Size, _Size, _Size),  # M, N, K
    *(ctypes.c_float, _Pointer, _Size, _Pointer, _Size),  # alpha, A, B
    *(ctypes.c_float, _Pointer, _Size),  # beta, C
)
_read = ctypes.c_size_t.from_address


class OneDnnFloat32:
    """See `Gemm`.

    Args:
        path: of the library

    Raises:
        OSError, ClusterError: see `Library`
    """

    name, is_recordable = "onednn_float32", True
    operands = np.dtype(np.float32)
    terms_added_in_place = 0

    def __init__(self, path: Path) -> None:
        self._library = Library(path)
        self._sgemm = self._library.dnnl.dnnl_sgemm
        self._sgemm.argtypes = _ARGUMENTS
        self._address = ctypes.cast(self._sgemm, ctypes.c_void_p).value or 0
        one = np.ones(1, np.float32)
        assert _address(one) == one.ctypes.data, "NumPy's struct begins with the pointer, as its documentation has it"

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""
        if is_small(*out.shape[-2:], a.shape[-1]):
            NUMPY.multiply(a, b, out, bias)
        elif bias is None:
            self._multiply(a, b, out, 0.0)
        else:
            elementary.copy(bias, out)
            self._multiply(a, b, out, 1.0)

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """See `Gemm.multiply_add`."""
        if is_small(*out.shape[-2:], a.shape[-1]):
            NUMPY.multiply_add(a, b, out, product)
        else:
            self._multiply(a, b, out, 1.0)

    def _multiply(self, a: Array, b: Array, out: Array, beta: float) -> None:
        """Compute out = a b + beta out; with a beta of 0 the contents of `out` do not count."""
        if out.strides[-1] != _BYTES and out.shape[-1] > 1:
            a, b, out = b.swapaxes(-1, -2), a.swapaxes(-1, -2), out.swapaxes(-1, -2)
        (a_order, a_apart), (b_order, b_apart), (order, apart) = _form(a), _form(b), _form(out)
        assert order == b"N", "either its rows or its columns have no gaps"
        sizes = *out.shape[-2:], a.shape[-1]
        places = [(_address(a), _address(b), _address(out))]
        if out.ndim > 2:
            places = list(zip(*(addresses(x, out.shape[:-2]) for x in (a, b, out)), strict=True))
        if (into := recording()) is not None:
            into.threads.add(self._library.one_thread)
            into.kept += [a, b, out]
            one, factor = np.float32(1), np.float32(beta)
            for a_at, b_at, out_at in places:
                operands = a_at, a_apart, b_at, b_apart, factor, out_at, apart
                into.function(self._address, (*a_order, *b_order, *sizes, one, *operands), returns_status=True)
            return
        with self._library.one_thread():
            for a_at, b_at, out_at in places:
                status = self._sgemm(a_order, b_order, *sizes, 1.0, a_at, a_apart, b_at, b_apart, beta, out_at, apart)
                if status:
                    raise ClusterError(f"oneDNN: dnnl_sgemm must succeed, got status {status}", None)


def is_small(*sizes: int) -> bool:
    """Whether a product of two matrices is left to NumPy: by M, N and K alone."""
    return 2 * math.prod(sizes) < SMALL_FLOPS


def _address(x: Array) -> int:
    """Address of the first element: `x.ctypes.data`, in a seventh of the time."""
    return _read(id(x) + _POINTER_AT).value


def _form(x: Array) -> tuple[bytes, int]:
    """The order of the last two dimensions, and the distance of rows ("N") or columns ("T") [elements].

    The stride of a dimension with a single element says nothing.
    """
    (rows, columns), (down, right) = x.shape[-2:], x.strides[-2:]
    if right == _BYTES or columns == 1:
        return b"N", down // _BYTES if rows > 1 else columns
    assert down == _BYTES or rows == 1, "either its rows or its columns have no gaps"
    return b"T", right // _BYTES
