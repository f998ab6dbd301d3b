"""How kernels are compiled: the two sets of floating-point freedoms that they may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

_FREE_SUMS = {"contract", "reassoc", "nsz", "arcp"}
"""sums in any (fixed) order; without `nnan` and `ninf`, under which a NaN may vanish"""


def elementwise(function: F) -> F:
    """Compile a kernel whose elements have the same bits however an array is cut."""
    compiled: F = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})(function)
    return compiled


def reduction(function: F) -> F:
    """Compile a kernel with sums along rows, whose order LLVM chooses, once, to vectorise them."""
    compiled: F = njit(nogil=True, cache=True, error_model="numpy", fastmath=_FREE_SUMS)(function)
    return compiled
