"""How the engine is compiled, and where its machine code is kept."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from numba import njit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering
from numba.np import arrayobj

from cstool.foundation.compiled.folder import KernelFolder, add_compiler, made_folder
from cstool.foundation.compiled.kernel_cache import KernelCache
from cstool.foundation.folders import cache_root, digest_of_sources

Compiled: TypeAlias = Callable[..., Any]
_njit: Any = njit  # its type knows not all options
_OPTIONS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
"""without `_nrt`, which would count references to the state at each call; nothing makes an array here"""


CONSTANTS = (
    "arch", "control", "counter", "issue", "main_thread", "network", "operations", "prng", "queues", "registers",
    "router", "scheduler", "vector",
)  # fmt: skip
"""modules of the reference engine whose constants are in the machine code"""


def engine_path() -> Path:
    """The folder of the engine's machine code, of these sources on this CPU."""
    package = Path(__file__).parents[2]
    constants = (package / "csl" / "fabric" / f"{name}.py" for name in CONSTANTS)
    digest = digest_of_sources(package, ("csl/fast", "foundation/compiled"), constants)
    add_compiler(digest)
    return cache_root() / f"fabric-{digest.hexdigest()}"


@functools.cache
def engine_folder() -> KernelFolder:
    """Make that folder."""
    return made_folder(engine_path())


_register: Any = register_pass


class _Codegen:
    """A code generator that knows no global variables of a function without machine code."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing."""


class _InnerLibrary(JITCodeLibrary):
    """A function in LLVM's language, to be linked into others."""

    @property
    def codegen(self) -> Any:
        return _Codegen(self._codegen)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002
        return 0


@_register(mutates_CFG=True, analysis_only=False)
class _Unoptimized(LoweringPass):
    """Make no machine code of a function: it is optimized, and compiled, where it is linked into an entry."""

    _name = "cstool_unoptimized"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library.enable_object_caching()
        library.__class__ = _InnerLibrary
        state.library = library
        return False


def _as_it_is(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:  # noqa: ARG001
    """An index as it is: Numba's own (`fix_integer_index`) lets a negative one count from the end."""
    return context.cast(builder, index, index_type, types.intp)


@contextmanager
def _indices_as_they_are() -> Iterator[None]:
    numpys: Any = arrayobj
    before = numpys.fix_integer_index
    numpys.fix_integer_index = _as_it_is
    try:
        yield
    finally:
        numpys.fix_integer_index = before


@_register(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    """Write LLVM's code of a function in which no index is negative: a test of each takes a quarter of the time."""

    _name = "cstool_lowering"

    def run_pass(self, state: Any) -> bool:
        with _indices_as_they_are():
            return bool(super().run_pass(state))  # type: ignore[no-untyped-call]


class _EntryCompiler(CompilerBase):
    """Numba's compiler, with `_Lowering`."""

    before: tuple[Any, ...] = ()
    """passes before it"""

    def define_pipelines(self) -> list[Any]:
        manager: Any = DefaultPassBuilder.define_nopython_pipeline(self.state)  # type: ignore[no-untyped-call]
        at = next(k for k, (each, _) in enumerate(manager.passes) if each is NativeLowering)
        manager.passes[at : at + 1] = [(each, each.__name__) for each in (*self.before, _Lowering)]
        manager._finalized = False
        manager.finalize()
        return [manager]


class _InnerCompiler(_EntryCompiler):
    """The same, up to LLVM's own code."""

    before = (_Unoptimized,)


ENTRIES: list[Any] = []
"""all entries of the engine's modules that are imported"""
WORDS = types.int64[::1]
"""the type of the state"""
_TYPES = {"f": WORDS, "arguments": WORDS, "rows": types.int64[:, ::1]}
"""types of parameters by name; others are int64"""


def signature_of(compiled: Any) -> tuple[Any, ...]:
    """Types of the parameters of an entry."""
    return tuple(_TYPES.get(name, types.int64) for name in inspect.signature(compiled.py_func).parameters)


def inner(function: Compiled) -> Compiled:
    """Compile a function that other compiled functions call."""
    options = {**_OPTIONS, "no_cpython_wrapper": True, "pipeline_class": _InnerCompiler}
    return _njit(**options)(function)  # type: ignore[no-any-return]


def entry(function: Compiled) -> Compiled:
    """Compile a function that Python calls, with all that it calls; its machine code is kept in a file."""
    compiled = _njit(**_OPTIONS, pipeline_class=_EntryCompiler)(function)
    if function.__module__.startswith(f"{__package__}."):
        ENTRIES.append(compiled)
    folder = engine_folder().path
    if folder is not None:
        compiled._cache = KernelCache(function, folder)
    return compiled  # type: ignore[no-any-return]
