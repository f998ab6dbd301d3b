"""Matrix products: the interface of their providers, and NumPy's provider; the memory that kernels borrow."""

import math
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from cstool.training.kernels import blas, elementary
from cstool.training.kernels.recording import address_of, recording

Array = np.ndarray[Any, Any]
Scratch = Callable[[str, tuple[int, ...]], Array]
"""lends contiguous memory by name and shape, its content unspecified: the same name gives the same memory again"""

_ALIGNMENT_BYTES = 64

F = TypeVar("F", bound=Callable[..., Any])


def quiet(function: F) -> F:
    """Let a function be silent about overflow and NaN: the machine looks for them itself."""
    silenced: F = np.errstate(over="ignore", invalid="ignore")(function)
    return silenced


class Gemm(Protocol):
    """A provider of products. Results may differ between providers in their last bits, so a run keeps its own."""

    name: str
    """as checkpoints have it"""
    operands: np.dtype
    """dtype of the arrays that are multiplied: float32, or uint16 for bfloat16, whose products are added in float32"""
    terms_added_in_place: int
    """most terms of a sum for which `multiply_add` needs no scratch, and has the bits of a product added later"""

    @property
    def is_recordable(self) -> bool:
        """Whether products are written down while a thread records (`recording.py`), and not computed."""
        ...

    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """Write the product a @ b (+ bias) to `out`, without a copy of any of them.

        Rows may lie any distance apart (column slices) and either operand may be transposed, as long as one of the last
        two strides is the size of an element.

        Args:
            a: (..., M, K) of `operands`
            b: (..., K, N) of `operands`
            out: (..., M, N) float32 or of `operands`, apart from a and b in memory
            bias: (N,) float32, added before anything is rounded; None for none
        """
        ...

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """Add the product a @ b to `out`.

        Args:
            a: (..., M, K) of `operands`
            b: (..., K, N) of `operands`
            out: (..., M, N) float32
            product: (..., M, N) float32, scratch
        """
        ...


class WorkSpace(threading.local):
    """Memory that a thread keeps between calls, by name, for providers of products, which get no scratch memory.

    It grows to the largest array asked for under a name.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def lend(self, name: str, shape: tuple[int, ...]) -> Array:
        """Lend a float32 array with arbitrary contents, which begins at a cache line."""
        size = math.prod(shape)
        found = self._arrays.get(name)
        if found is None or found.size < size:
            memory = np.empty(4 * size + _ALIGNMENT_BYTES, np.uint8)
            first = -memory.ctypes.data % _ALIGNMENT_BYTES
            found = self._arrays[name] = memory[first : first + 4 * size].view(np.float32)
        return found[:size].reshape(shape)


class NumpyGemm:
    """NumPy's BLAS."""

    name = "numpy"
    operands = np.dtype(np.float32)
    terms_added_in_place = 0

    @property
    def is_recordable(self) -> bool:
        """See `Gemm.is_recordable`; a class that extends this one may multiply in another way."""
        return type(self) is NumpyGemm

    @quiet
    def multiply(self, a: Array, b: Array, out: Array, bias: Array | None = None) -> None:
        """See `Gemm.multiply`."""
        self._product(a, b, out)
        if bias is not None:
            elementary.add(out, bias, out)

    @quiet
    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """See `Gemm.multiply_add`. NumPy has no product that accumulates, and SciPy's holds the interpreter lock."""
        self._product(a, b, product)
        elementary.add(out, product, out)

    @staticmethod
    def _product(a: Array, b: Array, out: Array) -> None:
        if (into := recording()) is not None:
            blas.record_product(into, a, b, out)
        else:
            np.matmul(a, b, out=out)


NUMPY = NumpyGemm()


def distances(x: Array) -> tuple[int, int]:
    """Strides of a matrix, one of them an element's [bytes].

    The stride of a dimension of a single element does not matter: it is set to an element's.
    """
    first, second = x.strides[-2:]
    if x.shape[-1] < 2:
        second = x.itemsize
    elif x.shape[-2] < 2:
        first = x.itemsize
    assert x.itemsize in (first, second), "as `Gemm.multiply` says"
    return first, second


def addresses(x: Array, batch: tuple[int, ...]) -> list[int]:
    """Addresses of the matrices of an array; along a dimension of one, the same address again and again."""
    found = [address_of(x)]
    apart = len(batch) + 2 - x.ndim  # dimensions that the array does not have
    for place, size in enumerate(batch):
        step = x.strides[place - apart] if place >= apart and x.shape[place - apart] > 1 else 0
        found = [address + i * step for address in found for i in range(size)]
    return found
