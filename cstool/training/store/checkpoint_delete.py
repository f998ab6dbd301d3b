"""Delete checkpoints, and nothing else; the index of their folder follows."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.training.store.checkpoint_index import forget_deleted
from cstool.training.store.checkpoint_opening import open_checkpoint
from cstool.training.store.commit_record import read_record
from cstool.training.store.file_layout import FILE_NAME, is_store, lock_path, record_path
from cstool.training.store.folder import list_checkpoints
from cstool.training.store.saved_state import Progress, no_progress
from cstool.training.store.shard_folder import is_shard_name, shards_beside
from cstool.training.store.store_lock import StoreLock

SUFFIX = ".mdl"
"""suffix of checkpoints; it alone marks a file that is too damaged to be recognized"""


@dataclass(frozen=True)
class Pruning:
    """The fates of the checkpoints of a folder, the latest last."""

    kept: list[Path]
    deleted: list[Path]
    damaged: list[CheckpointError]
    """newer than the oldest that is kept: these stay, too"""
    strange: list[CheckpointError]
    """called like checkpoints, but not to be deleted as such: these stay"""


def check_deletable(path: Path) -> None:
    """Check that a file is a checkpoint, or a MemoryX file that no run uses, even damaged, or raise CheckpointError."""
    if path.is_symlink():
        raise CheckpointError(
            f"{path}: must be a checkpoint itself to be deleted, this is a symbolic link",
            f"it is to {os.readlink(path)}",
        )
    if _is_store(path):
        with closing(StoreLock(lock_path(path), shared=True)):
            return
    try:
        with open_checkpoint(path):
            pass
    except DamagedCheckpointError:
        # A data set that was cut short looks the same.
        if path.suffix != SUFFIX:
            raise CheckpointError(
                f"{path}: must be a checkpoint to be deleted, this is too damaged to tell and not called {SUFFIX}"
            ) from None


def with_shards(paths: Sequence[Path]) -> list[Path]:
    """Return files, each once, and with a shard all others in its folder that belong to it: none is of use alone.

    Raises:
        CheckpointError: a folder cannot be read
    """
    found: dict[Path, None] = {}
    for path in paths:
        try:
            found.update(dict.fromkeys(shards_beside(path) if _is_store(path) else [path]))
        except OSError as error:
            raise CheckpointError(f"{path}: must be in a folder that can be read, got: {error.strerror}") from error
    return [*found]


def delete_checkpoints(paths: Sequence[Path]) -> None:
    """Delete checkpoints; where one must not be, delete none and raise CheckpointError. See `with_shards`."""
    paths = with_shards(paths)
    for path in paths:
        check_deletable(path)
    deleted: list[Path] = []
    try:
        for path in paths:
            _delete(path)
            deleted.append(path)
    finally:
        for folder in dict.fromkeys(path.parent for path in deleted):
            forget_deleted(folder)


def plan_pruning(folder: Path, keep: int, progress: Progress = no_progress) -> Pruning:
    """Plan to keep only the `keep` >= 1 latest checkpoints that are whole; all of these are verified.

    Raises:
        CheckpointError: the folder cannot be read
    """
    found = Pruning([], [], [], [])
    for entry in reversed(list_checkpoints(folder)):
        try:
            check_deletable(entry.path)
            if len(found.kept) == keep:
                found.deleted.insert(0, entry.path)
                continue
            with open_checkpoint(entry.path) as state:
                state.verify_all(progress)
            found.kept.insert(0, entry.path)
        except DamagedCheckpointError as error:
            found.damaged.insert(0, error)
        except CheckpointError as error:
            found.strange.insert(0, error)
    return found


def size_bytes(path: Path) -> int:
    """Space that deleting a checkpoint would free [bytes]."""
    files = [path, record_path(path)] if _is_store(path) else [path]
    return sum(file.stat().st_size for file in files if file.exists())


def _is_store(path: Path) -> bool:
    is_called_so = path.name == FILE_NAME or is_shard_name(path.name)
    return is_store(path) or (is_called_so and os.path.lexists(record_path(path)))


def _delete(path: Path) -> None:
    try:
        if not _is_store(path):
            os.unlink(path)
            return
        with closing(StoreLock(lock_path(path))) as lock:
            # The record goes first: files that it names must be whole.
            record_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            lock.remove()
    except OSError as error:
        raise CheckpointError(f"{path}: must be where it can be deleted, got: {error.strerror}") from error


def drop_shard(path: Path, name: str) -> None:
    """Delete a shard, with its commit record and its lock, if it is there and belongs to the set of a name.

    Raises:
        CheckpointError: it cannot be deleted, or a run uses it
    """
    record = read_record(record_path(path))
    if record is not None and record.shard is not None and record.shard.set == name:
        _delete(path)
