"""Which checkpoint of a folder is the newest: by what it holds, since a file can be renamed or copied."""

import os
from typing import NamedTuple

from cstool.errors import CheckpointError
from cstool.store.checked_state import step_of
from cstool.store.checkpoint_reader import CheckpointReader
from cstool.store.folder import TEMPLATE, CheckpointEntry, list_checkpoints


class HeldCheckpoint(NamedTuple):
    """A checkpoint of a folder, and what it holds."""

    entry: CheckpointEntry
    step: int
    """that it holds; where it cannot be read, that of its name"""

    @property
    def is_misnamed(self) -> bool:
        """Whether it is named for another step."""
        return self.step != self.entry.step


def held_step(entry: CheckpointEntry) -> int:
    """Return the step that a checkpoint holds; where it cannot be read, that of its name."""
    try:
        with CheckpointReader(entry.path) as reader:
            return step_of(entry.path, reader.values())
    except CheckpointError:
        return entry.step


def newest_checkpoints(folder: str | os.PathLike[str], template: str = TEMPLATE) -> list[HeldCheckpoint]:
    """Return the newest checkpoint of a folder, and before it those that are not, though their names say so.

    A checkpoint may hold less than its name says; those whose names are older are not looked into.

    Args:
        folder: the model_dir of a run
        template: how they are called, with {step} in it

    Returns:
        the newest last; nothing where there is none

    Raises:
        CheckpointError: the folder cannot be read
        ValueError: the template is not a file name with {step} in it
    """
    held: list[HeldCheckpoint] = []
    for entry in reversed(list_checkpoints(folder, template)):
        if any(found.step > entry.step or found.step == entry.step == found.entry.step for found in held):
            break
        held.append(HeldCheckpoint(entry, held_step(entry)))
    return sorted(held, key=lambda found: (found.step, not found.is_misnamed))
