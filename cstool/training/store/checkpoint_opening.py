"""Open a saved state by the name of its file: a checkpoint, a MemoryX file, or one of several shards."""

import os
from pathlib import Path

from cstool.foundation.errors import CheckpointError, StoreError
from cstool.training.store.checkpoint_reader import CheckpointReader
from cstool.training.store.commit_record import read_record
from cstool.training.store.committed_store import CommittedStore
from cstool.training.store.file_layout import record_path
from cstool.training.store.saved_state import SavedState
from cstool.training.store.shard_folder import check_set, common_steps, find_shards, sets_of, shard_name
from cstool.training.store.shard_record import Shard
from cstool.training.store.shards import CommittedShards, open_shards


def open_checkpoint(path: str | os.PathLike[str], *, older: bool = False) -> SavedState:
    """Open the saved state at `path` for reading; of a MemoryX file with `older` the commit before the last one.

    One shard of a MemoryX stands for all of them, which must be in the same folder: the newest step that all hold is
    opened, with `older` the one before it that all hold.

    Raises:
        DamagedCheckpointError: it is such a file, but damaged or not whole
        StoreError: it is a MemoryX file that a run uses, or a shard whose others are not in the folder
        CheckpointError: it cannot be read, or is of no kind that is known
    """
    path = Path(path)
    if os.path.lexists(record_path(path)):
        record = read_record(record_path(path))
        if record is not None and record.shard is not None:
            return _open_all(path, record.shard, older)
        return CommittedStore(path, older=older)
    if older:
        raise CheckpointError(f"{path}: must be a MemoryX file with a commit record for --older, this has none")
    return CheckpointReader(path)


def _open_all(path: Path, shard: Shard, older: bool) -> CommittedShards:
    folder, wanted = path.parent, shard_name(shard.node, shard.nodes)
    if path.name != wanted:
        raise StoreError(f"{path}: must be called {wanted}, which it is by its commit record")
    sets = sets_of(find_shards(folder))
    shards = next(shards for shards in sets if shards[0].set == shard.set)
    check_set(folder, shards, sets)
    newest, *before = common_steps(shards)
    if older and not before:
        raise StoreError(f"{folder}: all shards of MemoryX must hold a step before step {newest}, they do not")
    return open_shards(folder, shards, before[0] if older else newest)
