"""Matrix products: what kernels ask of a provider, and the one that NumPy is; the memory that kernels borrow."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
Scratch = Callable[[str, tuple[int, ...]], Array]
"""lends contiguous memory by name and shape, its content unspecified: the same name gives the same memory again"""

F = TypeVar("F", bound=Callable[..., Any])


def quiet(function: F) -> F:
    """Let a function be silent about overflow and NaN: the machine looks for them itself."""
    silenced: F = np.errstate(over="ignore", invalid="ignore")(function)
    return silenced


class Gemm(Protocol):
    """A provider of products. Results may differ between providers in their last bits, so a run keeps its own."""

    name: str
    """as checkpoints have it"""

    def multiply(self, a: Array, b: Array, out: Array) -> None:
        """Write the product a @ b to `out`, without a copy of any of them.

        Rows may lie any distance apart (column slices) and either operand may be transposed, as long as one of the last
        two strides is that of one element.

        Args:
            a: (..., M, K) float32
            b: (..., K, N) float32
            out: (..., M, N) float32, apart from a and b in memory
        """
        ...

    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """Add the product a @ b to `out`.

        Args:
            a: (..., M, K) float32
            b: (..., K, N) float32
            out: (..., M, N) float32
            product: (..., M, N) float32, scratch
        """
        ...


class NumpyGemm:
    """NumPy's BLAS."""

    name = "numpy"

    @quiet
    def multiply(self, a: Array, b: Array, out: Array) -> None:
        """See `Gemm.multiply`."""
        np.matmul(a, b, out=out)

    @quiet
    def multiply_add(self, a: Array, b: Array, out: Array, product: Array) -> None:
        """See `Gemm.multiply_add`. NumPy has no product that accumulates, and SciPy's holds the interpreter lock."""
        np.matmul(a, b, out=product)
        np.add(out, product, out=out)


NUMPY = NumpyGemm()
