"""How the engine is compiled, and where its machine code is kept."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from numba import njit
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering

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


@register_pass(mutates_CFG=True, analysis_only=False)
class _Unoptimized(LoweringPass):  # type: ignore[misc]
    """Leave a function as it is: it is optimized where it is linked into an entry, and again in each function between."""

    _name = "cstool_unoptimized"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library.enable_object_caching()
        library._optimize_final_module = lambda: None
        state.library = library
        return False


class _InnerCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler without LLVM's optimizations."""

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes.insert(
            next(k for k, (each, _) in enumerate(manager.passes) if each is NativeLowering),
            (_Unoptimized, "no optimizations"),
        )
        manager._finalized = False
        manager.finalize()
        return [manager]


def inner(function: Compiled) -> Compiled:
    """Compile a function that other compiled functions call."""
    options = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": _InnerCompiler}
    return _njit(**options)(function)  # type: ignore[no-any-return]


def entry(function: Compiled) -> Compiled:
    """Compile a function that Python calls, with all that it calls; its machine code is kept in a file."""
    compiled = _njit(**_OPTIONS)(function)
    folder = engine_folder().path
    if folder is not None:
        compiled._cache = KernelCache(function, folder)
    return compiled  # type: ignore[no-any-return]
