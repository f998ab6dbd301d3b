"""How the engine is compiled, and where its machine code is kept."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from numba import njit

from cstool.foundation.compiled.folder import KernelFolder, add_compiler, made_folder
from cstool.foundation.compiled.kernel_cache import KernelCache
from cstool.foundation.folders import cache_root, digest_of_sources

Compiled: TypeAlias = Callable[..., Any]
_njit: Any = njit  # its type knows not all options
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


@functools.cache
def engine_folder() -> KernelFolder:
    """The folder of the engine's machine code, of these sources on this CPU."""
    digest = digest_of_sources(Path(__file__).parents[2], ("csl/fast", "foundation/compiled"), ())
    add_compiler(digest)
    return made_folder(cache_root() / f"fabric-{digest.hexdigest()}")


def inner(function: Compiled) -> Compiled:
    """Compile a function that other compiled functions call."""
    return _njit(**_OPTIONS, no_cpython_wrapper=True)(function)  # type: ignore[no-any-return]


def entry(function: Compiled) -> Compiled:
    """Compile a function that Python calls, with all that it calls; its machine code is kept in a file."""
    compiled = _njit(**_OPTIONS)(function)
    folder = engine_folder().path
    if folder is not None:
        compiled._cache = KernelCache(function, folder)
    return compiled  # type: ignore[no-any-return]
