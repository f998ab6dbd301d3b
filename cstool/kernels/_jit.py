"""How kernels are compiled: the two sets of floating-point freedoms that they may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from numba import njit

Kernel: TypeAlias = Callable[..., Any]

_OPTIONS: Any = {"nogil": True, "cache": True, "error_model": "numpy"}
"""without NumPy's error model each division looks for a zero, and loops are not vectorised"""

CONTRACT = {"contract"}
"""a product and a sum may become one fused operation, nothing else"""

FREE_SUMS = {"contract", "reassoc", "nsz", "arcp"}
"""sums in any (fixed) order; without `nnan` and `ninf`, under which a NaN may vanish"""


def elementwise(function: Kernel) -> Kernel:
    """Compile a kernel whose elements have the same bits however an array is cut."""
    compiled: Kernel = njit(**_OPTIONS, fastmath=CONTRACT)(function)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """Compile a part of a kernel that LLVM must inline, however long: loops with calls are not vectorised."""
    compiled: Kernel = njit(**_OPTIONS, fastmath=CONTRACT, forceinline=True)(function)
    return compiled


def reduction(function: Kernel) -> Kernel:
    """Compile a kernel with sums along rows, whose order LLVM chooses, once, to vectorise them."""
    compiled: Kernel = njit(**_OPTIONS, fastmath=FREE_SUMS)(function)
    return compiled
