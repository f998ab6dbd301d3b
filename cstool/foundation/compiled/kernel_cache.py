"""Compiled kernels in files that are whole, or are not used."""

import functools
import hashlib
import logging
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from cstool.foundation.atomic_file import write_replacing

log = logging.getLogger("cstool")
_DIGEST_BYTES = 16
_told: set[str] = set()


class KernelCache(_Cache):
    """Numba's cache of the compiled forms of a function, in one folder.

    A file has one form, after a digest: cut short or changed, by a loss of power for example, it is compiled and
    written again. A file names its function, so none is taken for another. Files are Python pickles, which can run any
    code: no other user may be able to write to the folder.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._folder = folder

    @property
    def cache_path(self) -> str:
        """The folder of the files."""
        return str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the form for the types of `sig`, or None where there is no file of it that is whole."""
        _import_without_scipy()
        target_context.refresh()
        key, path = self._find(sig, target_context.codegen())
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if content[:_DIGEST_BYTES] != _digest(key, content[_DIGEST_BYTES:]):
            _tell("damaged", f"{path}: this compiled kernel is damaged; damaged ones are compiled again")
            return None
        rebuild: Any = CompileResult._rebuild
        return rebuild(target_context, *pickle.loads(content[_DIGEST_BYTES:]))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a form; where that cannot be, the next process compiles it again."""
        if data.lifted or data.library.has_dynamic_globals:  # it would not work in another process
            return
        key, path = self._find(sig, data.codegen)
        payload: bytes = dumps(data._reduce())  # type: ignore[no-untyped-call]
        try:
            write_replacing(path, _digest(key, payload) + payload)
        except OSError as error:
            _tell("unwritable", f"{path}: cannot be written: {error.strerror}; the next run compiles the kernels again")

    def enable(self) -> None:
        """Do nothing: the cache is always on."""

    def disable(self) -> None:
        """Do nothing: the cache is always on."""

    def flush(self) -> None:
        """Do nothing: Numba asks for it when a function is to be compiled anew, which then replaces the file."""

    def _find(self, sig: Any, codegen: Any) -> tuple[bytes, Path]:
        key = f"{self._name} {sig!r} {codegen.magic_tuple()!r}".encode()
        return key, self._folder / f"{self._name.removeprefix('cstool.')}-{_digest(key).hex()}.kernel"


@functools.cache
def _import_without_scipy() -> None:
    """Import a part of Numba that would import SciPy only to see whether it is there: a tenth of a second.

    Functions of Numba that need SciPy, which no kernel calls, look for it again when they are compiled.
    """
    from numba.np import linalg

    ask = getattr(linalg, "ensure_blas", None)
    if ask is None or "numba.np.arraymath" in sys.modules:
        return
    linalg.ensure_blas = lambda: None
    try:
        from numba.np import arraymath
    finally:
        linalg.ensure_blas = ask
    arraymath.ensure_blas = ask  # type: ignore[attr-defined]


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _tell(what: str, text: str) -> None:
    """Warn, once per process of one kind."""
    if what not in _told:
        _told.add(what)
        log.warning(text)
