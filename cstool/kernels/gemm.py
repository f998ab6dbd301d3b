"""Providers of matrix products: a run chooses one and keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from cstool.errors import ClusterError

Array = np.ndarray[Any, Any]

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
PROVIDERS: tuple[Gemm, ...] = (NUMPY,)
"""that there are here, the one to choose first"""


def choose_gemm(kept: object = None) -> Gemm:
    """Choose the provider of a run.

    Args:
        kept: name of the one with which the run began; None where it begins now

    Raises:
        ClusterError: this machine lacks that provider
    """
    if not isinstance(kept, str):
        return PROVIDERS[0]
    found = next((provider for provider in PROVIDERS if provider.name == kept), None)
    if found is None:
        raise ClusterError(
            f"the run multiplies matrices with {kept}, which must be one of "
            f"{', '.join(provider.name for provider in PROVIDERS)} on this machine",
            "go on where it began, or load its weights alone: --load_checkpoint_states model",
        )
    return found
