"""Open the saved state of a run, whatever kind of file it is in."""

import os
from pathlib import Path

from cstool.errors import CheckpointError
from cstool.store.checkpoint_reader import CheckpointReader
from cstool.store.committed_store import CommittedStore
from cstool.store.file_layout import record_path
from cstool.store.saved_state import SavedState


def open_checkpoint(path: str | os.PathLike[str], *, older: bool = False) -> SavedState:
    """Open the file of a saved state for reading.

    Args:
        path: of the file
        older: of a MemoryX file, the commit before the last one

    Raises:
        DamagedCheckpointError: it is such a file, but damaged or not whole
        CheckpointError: it cannot be read, or is of no kind that is known
    """
    if os.path.lexists(record_path(Path(path))):
        return CommittedStore(Path(path), older=older)
    if older:
        raise CheckpointError(f"{path}: must be a MemoryX file with a commit record for --older, this has none")
    return CheckpointReader(path)
