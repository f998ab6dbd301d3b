"""Find checkpoints: by a file, by a folder and a step, by a glob, or the newest of a folder."""

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cstool.foundation.errors import CheckpointError
from cstool.training.store.checked_state import step_of
from cstool.training.store.checkpoint_reader import CheckpointReader
from cstool.training.store.folder import TEMPLATE, CheckpointEntry, list_checkpoints
from cstool.training.store.foreign import check_not_foreign

LATEST = "latest"

_OF_A_FOLDER = re.compile(r"(?P<folder>.+):(?P<step>[^:/]+)")
_SHOWN = 3


def find_checkpoints(targets: Iterable[str]) -> list[Path]:
    """Return the files that some targets name, each once, in the order of the targets.

    A target is a file (opening it tells whether it is there), `DIR:STEP`, `DIR:latest`, or a glob, whose files come by
    their names, numbers by their value. A file of just that name counts first.

    Raises:
        CheckpointError: a folder has no such step, or a glob matches nothing
    """
    return list(dict.fromkeys(path for target in targets for path in _find(target)))


def find_checkpoint(target: str | os.PathLike[str]) -> Path:
    """Return the one file that a target names, or raise CheckpointError. See `find_checkpoints`."""
    found = _find(os.fspath(target))
    if len(found) > 1:
        some = ", ".join(map(str, found[:_SHOWN])) + (", ..." if len(found) > _SHOWN else "")
        raise CheckpointError(f"{target}: must be one checkpoint, got {len(found)}: {some}")
    return found[0]


def _find(target: str) -> list[Path]:
    if not target:
        raise CheckpointError("a checkpoint must have a name, got ''", "give a file, DIR:STEP or DIR:latest")
    if os.path.lexists(target):
        return [Path(target)]
    named = _OF_A_FOLDER.fullmatch(target)
    if named is not None and os.path.isdir(named["folder"]):
        return [_of_step(Path(named["folder"]), named["step"])]
    if glob.has_magic(target):
        found = sorted(glob.glob(target), key=_by_number)
        if not found:
            raise CheckpointError(
                f"{target}: no file has such a name", "cstool checkpoint list shows those of a folder"
            )
        return [Path(name) for name in found]
    return [Path(target)]


def _of_step(folder: Path, step: str) -> Path:
    """Return the checkpoint of a step, the latest of several."""
    if step != LATEST and not (step.isascii() and step.isdecimal()):
        raise CheckpointError(f"{folder}:{step}: after the colon must be a step or {LATEST}, got {step}")
    entries = list_checkpoints(folder)
    if not entries:
        check_not_foreign(folder)
        raise CheckpointError(f"{folder}: has no checkpoints", "give the model_dir of a run")
    if step == LATEST:
        return entries[-1].path
    found = [entry.path for entry in entries if entry.step == int(step)]
    if not found:
        steps = sorted({entry.step for entry in entries}, key=lambda other: (abs(other - int(step)), other))[:2]
        nearest = " and one of step ".join(map(str, sorted(steps)))
        raise CheckpointError(f"{folder}: has no checkpoint of step {int(step)}", f"there is one of step {nearest}")
    return found[-1]


def _by_number(name: str) -> list[str | tuple[int, str]]:
    # Text and numbers take turns, so that like is compared with like.
    parts = re.split(r"(\d+)", name)
    return [(int(part), part) if at % 2 else part for at, part in enumerate(parts)]


class HeldCheckpoint(NamedTuple):
    """A checkpoint of a folder, and its step."""

    entry: CheckpointEntry
    step: int
    """in the file; where it cannot be read, in its name"""

    @property
    def is_misnamed(self) -> bool:
        """Whether it is named for another step."""
        return self.step != self.entry.step


def held_step(entry: CheckpointEntry) -> int:
    """Return the step of a checkpoint; where it cannot be read, the step in its name."""
    try:
        with CheckpointReader(entry.path) as reader:
            return step_of(entry.path, reader.values())
    except CheckpointError:
        return entry.step


def newest_checkpoints(folder: str | os.PathLike[str], template: str = TEMPLATE) -> list[HeldCheckpoint]:
    """Return the newest checkpoint of a folder last, and before it older ones whose names claim a later step.

    A checkpoint may be of an earlier step than its name says, of the `template` with {step} in it; checkpoints with
    older names are not looked into.

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
