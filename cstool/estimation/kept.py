"""What is compiled for an estimate, kept for the next one that asks for the same.

An estimate compiles, which takes from a tenth of a second to some seconds. What comes of it follows from the params,
the system, what is asked, and the sources of the compiler: it is kept in a file under a digest of all of them. A file
that cannot be read, or is not as it was written, is made again; where nothing can be kept, nothing is.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path

import cstool
from cstool.atomic_file import write_replacing
from cstool.cache_folder import make_cache_folder
from cstool.errors import ArtifactError
from cstool.ir import Artifact, plain_data, plain_digest, read_artifact, write_artifact
from cstool.params import Params
from cstool.system import System

MOST_FILES = 400
"""of a state of the sources: of more than these, those go that were not used for longest"""
_ROOMS = ("compiler", "estimation", "ir", "models", "optimizers", "params", "perf", "sparsity", "system")


@cache
def sources_digest() -> str:
    """Return a digest of the sources that decide what a model is compiled to."""
    package = Path(cstool.__file__).parent
    digest = hashlib.blake2b(cstool.__version__.encode(), digest_size=8)
    rooms = (path for room in _ROOMS for path in sorted((package / room).rglob("*.py")))
    for path in (*sorted(package.glob("*.py")), *rooms):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class KeptResults:
    """Results of the compiler for one model on one system.

    Args:
        folder: for this user alone; None keeps nothing
        inputs: all that the results follow from, but for what each is asked with
    """

    def __init__(self, folder: Path | None, inputs: Iterable[str]) -> None:
        self._folder = folder
        self._inputs = tuple(inputs)

    def artifact(self, asked: str, make: Callable[[], Artifact]) -> Artifact:
        """Return the artifact that was kept, else the one that `make` returns, which is kept.

        Args:
            asked: what it is compiled with
            make: compiles; what it raises is raised, and not kept
        """
        path = self._path(asked)
        if path is not None and os.path.lexists(path):
            with contextlib.suppress(ArtifactError):
                found = read_artifact(path)
                _mark_used(path)
                return found
        made = make()
        if path is not None:
            with contextlib.suppress(ArtifactError):
                write_artifact(made, path)
                self._limit()
        return made

    def number(self, asked: str, make: Callable[[], float]) -> float:
        """Return the number that was kept, else the one that `make` returns, which is kept."""
        path = self._path(asked)
        if path is not None:
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(path.read_bytes())
                if isinstance(found, float):
                    _mark_used(path)
                    return found
        made = float(make())
        if path is not None:
            with contextlib.suppress(OSError):
                write_replacing(path, json.dumps(made))
                self._limit()
        return made

    def _path(self, asked: str) -> Path | None:
        if self._folder is None:
            return None
        digest = plain_digest({"inputs": self._inputs, "asked": asked})
        return self._folder / f"{digest[:32]}.json"

    def _limit(self) -> None:
        """Remove the files that were not used for longest, of too many. Others may do so at the same time."""
        assert self._folder is not None
        ages: list[tuple[float, str]] = []
        with contextlib.suppress(OSError):
            for entry in os.scandir(self._folder):
                with contextlib.suppress(OSError):
                    ages.append((entry.stat().st_mtime, entry.path))
        for _, path in sorted(ages)[: max(0, len(ages) - MOST_FILES)]:
            with contextlib.suppress(OSError):
                os.unlink(path)


def kept_results(params: Params, system: System, asked: str) -> KeptResults:
    """Return what is kept for a model on a system, in the user's cache.

    Args:
        params: all but the number of systems and the batch, which `asked` has
        system: as the estimate takes it
        asked: what else an estimate is asked for, in words that are the same for the same
    """
    try:
        folder = make_cache_folder("estimates", sources_digest())
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


def _mark_used(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)
