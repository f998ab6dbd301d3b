"""Commits of steps and checkpoints made of them: one thread, one after the other, beside the training."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cstool.machine.memoryx.arrays import ModelArrays
from cstool.machine.recorder import OFF, Recorder
from cstool.store import write_snapshot


class Commits:
    """Makes the commits of a MemoryX that is in a file."""

    def __init__(self, arrays: ModelArrays) -> None:
        self.last: Future[None] | None = None
        """the last commit, under way or done"""
        self.waited_s = 0.0
        """time that steps waited for the commit before the last one [s]"""
        self.recorder: Recorder = OFF
        self._arrays = arrays
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commit")

    def begin(self, step: int, updates: Sequence[Future[None]], values: Callable[[], Mapping[str, Any]]) -> None:
        """Commit a step once its updates are applied; waits for the commit before it.

        Raises:
            StoreError: the commit before could not be made
        """
        if self.last is not None:
            began = time.perf_counter()
            self.last.result()
            self.waited_s += time.perf_counter() - began
        self.last = self._thread.submit(self._make, step, updates, values)

    def _make(self, step: int, updates: Sequence[Future[None]], values: Callable[[], Mapping[str, Any]]) -> None:
        file, graph = self._arrays.file, self._arrays.graph
        assert file is not None, "who asks for commits has a store that can"
        with self.recorder.in_memoryx(step, "commits", "wait"):
            for update in updates:
                update.result()
        links = {f"model.{alias}": f"model.{weight}" for alias, weight in graph.aliases.items()}
        with self.recorder.in_memoryx(step, "commits", "commit"):
            file.commit(values(), links)

    def snapshot(self, path: Path) -> Future[tuple[int, float]]:
        """Write a checkpoint from the last commit asked for: bytes of its tensors, and the seconds that it took."""
        file, names = self._arrays.file, self._arrays.stored_names
        assert file is not None, "who asks for snapshots has a store that can"

        def write() -> tuple[int, float]:
            began = time.perf_counter()
            return write_snapshot(path, file.path, names), time.perf_counter() - began

        return self._thread.submit(write)

    def drain(self) -> None:
        """Wait for the last commit."""
        if self.last is not None:
            self.last.result()

    def close(self) -> None:
        """Wait for a commit that is under way, and end the thread."""
        self._thread.shutdown()
