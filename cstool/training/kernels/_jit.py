"""How kernels are compiled: the sets of floating-point freedoms that they may use."""

from collections.abc import Callable
from typing import Any, TypeAlias

from numba import njit
from numba.core.registry import CPUDispatcher

from cstool.foundation.compiled.kernel_cache import KernelCache
from cstool.training.kernels._cache import kernel_folder
from cstool.training.kernels.recording import recording

Kernel: TypeAlias = Callable[..., Any]

_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""without NumPy's error model each division looks for a zero, and loops are not vectorised; nothing calls from C"""

CONTRACT = {"contract"}
"""a product and a sum may become one fused operation, nothing else"""

INLINED: Any = {"fastmath": CONTRACT, "error_model": "numpy", "forceinline": True, "no_cfunc_wrapper": True}
"""options of functions that LLVM must inline in kernels"""

FREE_SUMS = {"contract", "reassoc", "nsz", "arcp"}
"""sums in any (fixed) order; without `nnan` and `ninf`, under which a NaN may vanish"""


def elementwise(function: Kernel, of: str = "") -> Kernel:
    """Compile a kernel whose elements have the same bits however an array is cut.

    Args:
        of: a word for the things that the closure of the function has captured; each word has a file of its own
    """
    return _compiled(function, of, fastmath=CONTRACT)


def exact(function: Kernel, of: str = "") -> Kernel:
    """Compile a kernel that rounds each product and each sum, in their order, as NumPy does; `of` as above."""
    return _compiled(function, of)


def exact_inlined(function: Kernel) -> Kernel:
    """Compile a part of a kernel that rounds as `exact` does, and that LLVM must inline."""
    return _compiled(function, forceinline=True, no_cpython_wrapper=True)


def inlined(function: Kernel) -> Kernel:
    """Compile a part of a kernel that LLVM must inline, however long: loops with calls are not vectorised."""
    return _compiled(function, fastmath=CONTRACT, forceinline=True, no_cpython_wrapper=True)


def reduction(function: Kernel) -> Kernel:
    """Compile a kernel with sums along rows, whose order LLVM chooses, once, to vectorise them.

    A loop that sums must not write: LLVM makes two versions of it, and runs the other one where arrays overlap.
    """
    return _compiled(function, fastmath=FREE_SUMS)


class _Recordable(CPUDispatcher):
    """A compiled function whose calls can be written down, see `recording.py`."""

    def __call__(self, *arguments: Any) -> Any:
        """Make a call, or write it down where this thread records."""
        into = recording()
        if into is None:
            return super().__call__(*arguments)
        return into.kernel(self, arguments)


def _compiled(function: Kernel, of: str = "", **options: Any) -> Kernel:
    if of:
        # Numba makes the symbols of a kernel from this name.
        function.__qualname__ = f"{function.__name__}.{of}"
    compiled: Any = njit(**_OPTIONS, **options)(function)
    compiled.__class__ = _Recordable
    folder = kernel_folder().path
    # Any other function with a closure is part of others, and kept with them: no name tells the captured variables.
    if folder is not None and (of or function.__closure__ is None):
        compiled._cache = KernelCache(function, folder)
    return compiled  # type: ignore[no-any-return]
