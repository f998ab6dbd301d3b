"""The one matrix product behind which GEMM providers sit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


def quiet(function: F) -> F:
    """Let a function be silent about overflow and NaN: the runtime looks for them itself."""
    silenced: F = np.errstate(over="ignore", invalid="ignore")(function)
    return silenced


@quiet
def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Write the product a @ b to `out`, without a copy of any of them.

    Rows may lie any distance apart (column slices) and either operand may be transposed, as long as one of the last
    two strides is that of one element.

    Args:
        a: (..., M, K) float32
        b: (..., K, N) float32
        out: (..., M, N) float32, apart from a and b in memory
    """
    np.matmul(a, b, out=out)


@quiet
def matmul_add(a: np.ndarray, b: np.ndarray, out: np.ndarray, product: np.ndarray) -> None:
    """Add the product a @ b to `out`.

    NumPy offers no product that accumulates, and the one of SciPy holds the interpreter lock.

    Args:
        a: (..., M, K) float32
        b: (..., K, N) float32
        out: (..., M, N) float32
        product: (..., M, N) float32, scratch
    """
    np.matmul(a, b, out=product)
    np.add(out, product, out=out)
