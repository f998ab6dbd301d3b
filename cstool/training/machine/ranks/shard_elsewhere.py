"""Committed shards at another rank: the reading of them at rank 0, and the sending of them at that rank."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from cstool.training.machine.ranks.calls import Answer, Function
from cstool.training.store import CommittedStore
from cstool.training.store import Progress as BytesProgress
from cstool.training.store.saved_state import no_progress

Array = np.ndarray[Any, Any]


class ShardElsewhere:
    """See `ShardSource`: a shard that another rank has.

    Args:
        call: calls a function at that rank
        is_ours: whether that rank holds the lock of the file
    """

    def __init__(self, call: Callable[..., Future[Answer]], path: Path, step: int, is_ours: bool) -> None:
        self.path = path
        self._call = call
        self._shapes: dict[str, tuple[int, ...]]
        self._dtypes: dict[str, str]
        self.record, self._shapes, self._dtypes = call("open shard", path, step, is_ours).result().result

    def shape(self, key: str) -> tuple[int, ...]:
        """See `ShardSource.shape`."""
        return self._shapes[key]

    def dtype(self, key: str) -> str:
        """See `ShardSource.dtype`."""
        return self._dtypes[key]

    def read(self, key: str, out: Array, start: int, stop: int) -> None:
        """See `ShardSource.read`."""
        np.copyto(out, self._call("read shard", self.path, key, start, stop).result().arrays[0])

    def verify_all(self, progress: BytesProgress = no_progress) -> None:  # noqa: ARG002
        """See `ShardSource.verify_all`."""
        self._call("verify shard", self.path).result()

    def close(self) -> None:
        """See `ShardSource.close`."""
        self._call("close shard", self.path)


class OpenShards:
    """The committed shards that rank 0 reads from this rank."""

    def __init__(self) -> None:
        self._open: dict[Path, CommittedStore] = {}

    @property
    def functions(self) -> dict[str, Function]:
        """Functions that rank 0 calls, by name."""
        return {
            "open shard": self._open_shard,
            "read shard": lambda path, key, start, stop: Answer(arrays=[self._open[path].read(key, None, start, stop)]),
            "verify shard": self._verify,
            "close shard": self._close,
        }

    def _open_shard(self, path: Path, step: int, is_ours: bool) -> Answer:
        found = self._open[path] = CommittedStore(path, at_step=step, is_ours=is_ours)
        names = list(found.record.arrays)
        return Answer((found.record, {n: found.shape(n) for n in names}, {n: found.dtype(n) for n in names}))

    def _verify(self, path: Path) -> Answer:
        self._open[path].verify_all()
        return Answer()

    def _close(self, path: Path) -> Answer:
        self._open.pop(path).close()
        return Answer()

    def close(self) -> None:
        """Close the open shards."""
        for each in self._open.values():
            each.close()
