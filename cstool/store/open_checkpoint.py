"""Open the saved state of a run, whatever kind of file it is in."""

from __future__ import annotations

import os

from cstool.store.checkpoint_reader import CheckpointReader
from cstool.store.saved_state import SavedState


def open_checkpoint(path: str | os.PathLike[str]) -> SavedState:
    """Open the file of a saved state for reading.

    Raises:
        DamagedCheckpointError: it is such a file, but damaged or not whole
        CheckpointError: it cannot be read, or is of no kind that is known
    """
    return CheckpointReader(path)
