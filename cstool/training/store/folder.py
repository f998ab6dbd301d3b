"""A folder of checkpoints: the names of the files, the latest of them, temporary files of a dead writer."""

import contextlib
import datetime
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from cstool.foundation.atomic_file import NoLocksError, take_lock
from cstool.foundation.errors import CheckpointError
from cstool.training.store.pending_file import TEMPORARY_NAME

TEMPLATE = "checkpoint_{step}.mdl"
"""name of a checkpoint; where it is taken, `_{YYYYmmdd_HHMMSS}` comes before the suffix"""

STALE_AGE_S = 60.0
"""age from which the temporary file of a writer that is gone may be removed [s]"""


@dataclass(frozen=True)
class CheckpointEntry:
    """A checkpoint in a folder; `timestamp` is in its name, YYYYmmdd_HHMMSS, or None."""

    step: int
    timestamp: str | None
    path: Path


def checkpoint_path(
    model_dir: str | os.PathLike[str], step: int, template: str = TEMPLATE, now: datetime.datetime | None = None
) -> Path:
    """Return a free path for the checkpoint of a step, named by a template with {step} in it; see `free_path`.

    Raises:
        ValueError: the template is not a file name with {step} in it
    """
    _pattern(template)
    return free_path(Path(model_dir) / template.replace("{step}", str(step)), now)


def free_path(plain: Path, now: datetime.datetime | None = None) -> Path:
    """Return a path that is not taken: with the time (None: the present one) in its name where the plain one is."""
    path, time_stamp = plain, now or datetime.datetime.now()
    while os.path.lexists(path):
        path = plain.with_name(f"{plain.stem}_{time_stamp:%Y%m%d_%H%M%S}{plain.suffix}")
        time_stamp += datetime.timedelta(seconds=1)
    return path


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files of a folder; none of a folder that is not there.

    Raises:
        CheckpointError: it cannot be read
    """
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: must be a folder that can be read, got: {error.strerror}") from error


def list_checkpoints(folder: str | os.PathLike[str], template: str = TEMPLATE) -> list[CheckpointEntry]:
    """Return the checkpoints of a folder by step, then timestamp: the latest is last. No folder, no checkpoints.

    Raises:
        CheckpointError: the folder cannot be read
        ValueError: the template is not a file name with {step} in it
    """
    pattern = _pattern(template)
    found = (match for name in names_in(folder) if (match := pattern.fullmatch(name)))
    matches = [match for match in found if (Path(folder) / match.string).is_file()]
    entries = [CheckpointEntry(int(m["step"]), m["timestamp"], Path(folder) / m.string) for m in matches]
    return sorted(entries, key=lambda entry: (entry.step, entry.timestamp or "", entry.path.name))


def sweep_temporary(folder: str | os.PathLike[str], glob: str = "*.tmp", age_s: float = STALE_AGE_S) -> list[Path]:
    """Remove, and return, the temporary files of writers that are gone: old enough, and without a lock."""
    swept: list[Path] = []
    for path in sorted(Path(folder).glob(glob)):
        # With any error (already gone, locked, not ours to remove), the file can stay.
        with contextlib.suppress(OSError, NoLocksError):
            if TEMPORARY_NAME.fullmatch(path.name) and time.time() - path.lstat().st_mtime >= age_s:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    take_lock(descriptor, path)
                    path.unlink()
                finally:
                    os.close(descriptor)
                swept.append(path)
    return swept


def _pattern(template: str) -> re.Pattern[str]:
    stem, suffix = os.path.splitext(template)
    if template.count("{step}") != 1 or "{step}" not in stem or os.path.basename(template) != template:
        raise ValueError(f"the name of checkpoints must be a file name with one {{step}} in its stem, got {template}")
    before, after = (re.escape(part) for part in stem.split("{step}"))
    return re.compile(rf"{before}(?P<step>[0-9]+){after}(_(?P<timestamp>[0-9]{{8}}_[0-9]{{6}}))?{re.escape(suffix)}")
