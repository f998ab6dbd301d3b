"""Whole runs on several ranks that are threads of this process, whose files can be watched and made to fail."""

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from cstool.foundation.errors import ClusterError, CstoolError, ToldElsewhere
from cstool.foundation.progress import Silent
from cstool.model.params import load_params
from cstool.training.run.follow import follow
from cstool.training.run.result import RunResult
from cstool.training.run.run import run
from cstool.training.run.session import RunOrder
from tests.end_to_end.runs import compiled
from tests.unit.training.machine.links import ThreadLink, linked, serving

CHANGING = ("pwritev", "pwrite", "replace", "rename", "link", "unlink", "ftruncate")
"""calls that change files; those that only make sure of something leave them as they are"""


def run_ranks(file: Path, ranks: int, *, mode: str = "train", **flags: Any) -> RunResult:
    """Run a params file on so many ranks; flags are dotted keys with `__` for the dots."""
    typed = {key.replace("__", "."): (f"--{key}", value) for key, value in flags.items()}
    params, links = load_params(file, flags=typed), linked(ranks)
    artifact = compiled(params, mode, "weight_streaming")

    def serve(link: ThreadLink) -> None:
        try:
            follow([params], mode, 1, link)
        except ToldElsewhere:
            pass
        except CstoolError as error:
            links[0].fail(ClusterError(f"rank {link.rank}: {error.message}", error.hint))

    with serving(links, serve):
        return run(params, artifact, RunOrder(mode, lanes=1, sparse_kernels="always", link=links[0]), Silent())


class Crashes:
    """Copies a folder as crashes would leave it: of all ranks at once, between any two calls that change a file.

    Args:
        folder: that is watched
        copies: where the copies go, each in a folder with a number
        share: of the writes of rows, before which a copy is made; before and after any other change one is made
    """

    def __init__(self, folder: Path, copies: Path, share: float = 0.02) -> None:
        self.left: list[Path] = []
        """the copies"""
        self._folder, self._copies, self._share = folder, copies, share
        self._chance = random.Random(0)
        self._lock = threading.RLock()

    def _copy(self) -> None:
        # What is in temporary files goes with the processes, or is swept.
        target = self._copies / str(len(self.left))
        shutil.copytree(self._folder, target, ignore=shutil.ignore_patterns("*.tmp", "*.lock", "cerebras_logs"))
        self.left.append(target)

    def _instead(self, name: str, original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        is_rename = name in ("replace", "rename", "link", "unlink")
        is_ours = is_rename and str(self._folder) in str(arguments[0]) and ".h5" in str(arguments[0])
        with self._lock:
            if is_ours or (not is_rename and self._chance.random() < self._share):
                self._copy()
            found = original(*arguments, **options)
            if is_ours:
                self._copy()
            return found

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what this process does to files."""
        calls = {name: partial(self._instead, name, getattr(os, name)) for name in CHANGING}
        with mock.patch.multiple(os, **calls):
            yield
