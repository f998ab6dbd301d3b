"""Compiled artifacts of estimates, kept for the next estimate of the same.

An estimate compiles, which takes from a tenth of a second to some seconds. The result follows from the params, the
system, the request, and the sources of the compiler: it is kept in a file under a digest of all of them. A file that
cannot be read, or has been damaged, is made again. Where no file can be written, nothing is kept.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import cstool
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import ArtifactError
from cstool.foundation.folders import cache_root, digest_of_sources, make_cache_folder
from cstool.model.ir import Artifact, plain_data, plain_digest, read_artifact, write_artifact
from cstool.model.params import Params
from cstool.model.system import System

T = TypeVar("T")

MOST_FILES = 400
"""files of a state of the sources: beyond this number, the files that were unused for longest go"""
_ROOMS = "foundation", "model", "plan/compiler", "plan/estimation", "plan/timing"
_UNUSABLE = ArtifactError, OSError, ValueError
"""errors of a file that cannot be read or written, or has been damaged"""


@cache
def sources_digest() -> str:
    """Return a digest of the sources that decide the result of a compilation."""
    package = Path(cstool.__file__).parent
    digest = digest_of_sources(package, _ROOMS, ())
    digest.update(cstool.__version__.encode())
    return digest.hexdigest()


class KeptResults:
    """Results of the compiler for one model on one system.

    Args:
        folder: for this user alone; None keeps nothing
        inputs: all inputs of the results, without the request of each
    """

    def __init__(self, folder: Path | None, inputs: Iterable[str]) -> None:
        self._folder = folder
        self._inputs = tuple(inputs)

    def artifact(self, asked: str, system: System, make: Callable[[], Artifact]) -> Artifact:
        """Return the artifact that was kept, else the one that `make` returns, which is kept.

        Args:
            asked: the request of the compilation
            system: the target of the compilation
            make: compiles; its errors are passed on, and not kept
        """

        def read(path: Path) -> Artifact:
            # A file leaves out the hosts and servers that a job pays for: no step depends on them.
            found = read_artifact(path)
            return replace(found, system=replace(found.system, hosts=system.hosts, servers=system.servers))

        return self._once(asked, read, make, write_artifact)

    def number(self, asked: str, make: Callable[[], float]) -> float:
        """Return the number that was kept, else the one that `make` returns, which is kept."""

        def write(value: float, path: Path) -> None:
            write_replacing(path, repr(value))

        return self._once(asked, lambda path: float(path.read_text()), make, write)

    def _once(
        self, asked: str, read: Callable[[Path], T], make: Callable[[], T], write: Callable[[T, Path], None]
    ) -> T:
        if self._folder is None:
            return make()
        digest = plain_digest({"inputs": self._inputs, "asked": asked})
        path = self._folder / f"{digest[:32]}.json"
        with contextlib.suppress(*_UNUSABLE):
            found = read(path)
            with contextlib.suppress(OSError):
                os.utime(path)
            return found
        made = make()
        with contextlib.suppress(*_UNUSABLE):
            write(made, path)
            self._limit(self._folder)
        return made

    @staticmethod
    def _limit(folder: Path) -> None:
        """Remove the files that were not used for longest, of too many. Others may do so at the same time."""
        ages: list[tuple[float, str]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    ages.append((entry.stat().st_mtime, entry.path))
        for _, path in sorted(ages)[: max(0, len(ages) - MOST_FILES)]:
            with contextlib.suppress(OSError):
                os.unlink(path)


def kept_results(params: Params, system: System, asked: str) -> KeptResults:
    """Return the kept results of a model on a system, in the user's cache.

    Args:
        params: all but the number of systems and the batch, which `asked` has
        system: as the estimate takes it
        asked: the rest of the request, in words that are the same for the same request
    """
    folder = cache_root() / f"estimates-{sources_digest()}"
    try:
        make_cache_folder(folder)
    except OSError:
        return KeptResults(None, ())
    compared = {field.name: getattr(params, field.name) for field in fields(params) if field.compare}
    # A set has another order in each process.
    texts = (
        f"{name}={sorted(value) if isinstance(value, frozenset) else value!r}"
        for name, value in compared.items()
        if name not in ("model_dir", "compile_dir", "events_dir")
    )
    return KeptResults(folder, (*texts, plain_digest(plain_data(system)), asked))
