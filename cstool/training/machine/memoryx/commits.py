"""Commits of steps and checkpoints made of them: one thread, one after the other, beside the training.

Of several nodes the first leads. All wait for their updates; each makes its own file last; and when all have, each
knows that the slots of the step before are free. So after a crash there is a step that all of them hold. The first
commit says of itself that others may lack it, until all have made it: so the leftovers of a crash are told from shards
of which one is gone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from cstool.foundation.errors import CheckpointError
from cstool.training.machine.memoryx.arrays import ModelArrays
from cstool.training.machine.memoryx.elsewhere import Elsewhere
from cstool.training.machine.recorder import OFF, Recorder
from cstool.training.store import (
    SHARD,
    CommittedShards,
    CommittedStore,
    delete_checkpoints,
    drop_shard,
    left_out_by,
    shard_name,
    write_checkpoint,
    write_snapshot,
)


class Commits:
    """Makes the commits of a MemoryX that is in a file."""

    def __init__(self, arrays: ModelArrays, elsewhere: Elsewhere) -> None:
        self.last: Future[None] | None = None
        """the last commit of all nodes, under way or done"""
        self.waited_s = 0.0
        """time that steps waited for the commit before the last one [s]"""
        self.recorder: Recorder = OFF
        self.outdated: Sequence[tuple[int, Path, str]] = ()
        """files of MemoryX that go once this one is committed: the rank that has them, and the set of a shard"""
        self._arrays, self._elsewhere = arrays, elsewhere
        self._expected: SimpleQueue[tuple[int, Sequence[Future[None]]] | BaseException] = SimpleQueue()
        """at another node than the first: the step that will be committed, and its updates, once they are known"""
        self._step = 0
        """at such a node: the step that is being committed"""
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
        self._elsewhere.begin_commit()
        self.last = self._thread.submit(self._make, step, updates, values)

    def _make(self, step: int, updates: Sequence[Future[None]], values: Callable[[], Mapping[str, Any]]) -> None:
        self._await(step, updates)
        self._elsewhere.await_updates()
        found = values()
        wait = self._elsewhere.commit(found)
        self._commit(step, found)
        wait()
        self._confirm()
        self._elsewhere.end_commit()
        self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Delete the files that this commit takes the place of; one that cannot be deleted stays, nothing is lost."""
        outdated, self.outdated = self.outdated, ()
        for rank, path, name in outdated:
            with suppress(CheckpointError):
                if rank:
                    self._elsewhere.drop(rank, path, name)
                elif name:
                    drop_shard(path, name)
                else:
                    delete_checkpoints([path])

    def _await(self, step: int, updates: Sequence[Future[None]]) -> None:
        with self.recorder.in_memoryx(step, "commits", "wait"):
            for update in updates:
                update.result()

    def _commit(self, step: int, values: Mapping[str, Any]) -> None:
        """Make the step last at this node."""
        arrays = self._arrays
        file = arrays.file
        assert file is not None, "who asks for commits has a store that can"
        tied = {f"model.{alias}": f"model.{weight}" for alias, weight in arrays.graph.aliases.items()}
        links = {alias: name for alias, name in tied.items() if not file.lends(name)}
        with self.recorder.in_memoryx(step, "commits", "commit"):
            file.commit({**values, **arrays.shard_values}, links)

    def _confirm(self) -> None:
        """Note that all nodes have made the first commit."""
        file = self._arrays.file
        assert file is not None and file.record is not None, "it was made"
        shard = dict(file.record.values.get(SHARD, {}))
        if shard.pop("pending", False):
            file.amend({**file.record.values, SHARD: shard})

    # At another node than the first, which asks for all of it, in this order.

    def expect(self, step: int, updates: Sequence[Future[None]]) -> None:
        """Know that a step will be committed: updates of the next one wait for that."""
        self.last = Future()
        self._expected.put((step, updates))

    def await_updates(self) -> None:
        """Wait until the updates of that step are applied; the first node may ask before this one knows of the step."""
        expected = self._expected.get()
        if isinstance(expected, BaseException):
            raise expected
        self._step, updates = expected
        self._await(self._step, updates)

    def commit(self, values: Mapping[str, Any]) -> None:
        """Make the step last at this node."""
        self._commit(self._step, values)

    def end(self, error: BaseException | None = None) -> None:
        """Know that all nodes have committed, or that they never will."""
        if error is not None:
            self._expected.put(error)
        if self.last is None or self.last.done():
            return
        if error is None:
            self._confirm()
            self.last.set_result(None)
        else:
            self.last.set_exception(error)

    def snapshot(self, path: Path) -> Future[tuple[int, float]]:
        """Write a checkpoint from the last commit asked for: bytes of its tensors, and the seconds that it took.

        The next steps may begin meanwhile. The commit after it waits for it, and the updates after that for that
        commit: until then the copied arrays are not overwritten.
        """

        def write() -> tuple[int, float]:
            began = time.perf_counter()
            return self._write(path), time.perf_counter() - began

        return self._thread.submit(write)

    def _write(self, path: Path) -> int:
        file, nodes = self._arrays.file, self._arrays.shards.nodes
        assert file is not None and file.record is not None, "who asks for snapshots has a store that commits"
        left_out = {f"model.{name}" for name in left_out_by(file.record.values, self._arrays.graph)}
        if nodes == 1:
            return write_snapshot(path, file.path, [name for name in self._arrays.stored_names if name not in left_out])
        own, step = CommittedStore(file.path, is_ours=True), file.record.step
        others = [
            self._elsewhere.open_shard(node, file.path.with_name(shard_name(node, nodes)), step, beside=True)
            for node in range(1, nodes)
        ]
        with CommittedShards([own, *others]) as state:
            keys = [key for key in state.keys() if (state.link_of(key) or key) not in left_out]  # noqa: SIM118
            return write_checkpoint(path, state, keys=keys)

    def drain(self) -> None:
        """Wait for the last commit."""
        if self.last is not None:
            self.last.result()

    def close(self) -> None:
        """Wait for a commit that is under way, and end the thread."""
        self._thread.shutdown()
