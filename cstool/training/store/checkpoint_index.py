"""The index of a folder of checkpoints: a YAML file for people and scripts, kept beside them."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from cstool.foundation.atomic_file import NoLocksError, is_plain_name, take_lock, write_replacing
from cstool.foundation.errors import CheckpointError
from cstool.training.store.folder import sweep_temporary

INDEX_NAME = "checkpoints_index.yaml"
MOST_BYTES = 1 << 20
"""of an index, some 15,000 checkpoints: a longer file is not ours, and would take long and much memory to read"""


@dataclass(frozen=True)
class IndexEntry:
    """A checkpoint in the index; `file` is its name in the folder of the index, `run` names its run."""

    step: int
    file: str
    run: str | None = None


def read_index(folder: str | os.PathLike[str]) -> list[IndexEntry]:
    """Return the index of a folder without entries whose file is gone, or would be in another folder.

    An index that is missing or cannot be understood counts as empty: the files themselves are the truth.
    """
    try:
        if not has_index(folder):
            return []
        with open(Path(folder) / INDEX_NAME, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return []
        document = yaml.safe_load(content)
        entries = [_entry(found) for found in document["checkpoints"]]
    except (OSError, UnicodeError, yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return []
    return [
        entry for entry in entries if is_plain_name(entry.file) and os.path.isfile(os.path.join(folder, entry.file))
    ]


def _entry(found: Mapping[str, Any]) -> IndexEntry:
    run = found.get("run")
    return IndexEntry(int(found["step"]), str(found["file"]), None if run is None else str(run))


def register_checkpoint(
    folder: str | os.PathLike[str], step: int, path: str | os.PathLike[str], run: str | None = None
) -> list[IndexEntry]:
    """Enter a checkpoint and its run in the index of a folder; return the index, or raise CheckpointError.

    Entries whose file is gone are dropped.
    """
    new = IndexEntry(step, os.path.relpath(path, folder), run)
    return _update(Path(folder), [new], f"the checkpoint {path} itself is complete")


def forget_deleted(folder: str | os.PathLike[str]) -> None:
    """Drop the entries of an index, if there is one, whose file is gone, or raise CheckpointError."""
    if has_index(folder):
        _update(Path(folder), [], "its entries of deleted checkpoints do no harm")


def has_index(folder: str | os.PathLike[str]) -> bool:
    """Tell whether a folder has an index."""
    return (Path(folder) / INDEX_NAME).is_file()


def _update(folder: Path, new: list[IndexEntry], comfort: str) -> list[IndexEntry]:
    """Enter checkpoints, and remove entries whose file is gone; `comfort` is the hint if that fails."""
    index, names = folder / INDEX_NAME, {entry.file for entry in new}
    try:
        with _locked(index.with_name(f"{INDEX_NAME}.lock")):
            sweep_temporary(folder, f"{INDEX_NAME}.*.tmp", age_s=0)
            entries = [*(entry for entry in read_index(folder) if entry.file not in names), *new]
            document = {"checkpoints": [{k: v for k, v in asdict(entry).items() if v is not None} for entry in entries]}
            write_replacing(index, yaml.safe_dump(document, sort_keys=False))
    except OSError as error:
        raise CheckpointError(
            f"{index}: the index of checkpoints must be writable, got: {error.strerror}", comfort
        ) from error
    return entries


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file; it stays, since removing it would let two others hold different ones.

    Where there are no locks it does without: two runs at once cost the index an entry at most.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(NoLocksError):
            take_lock(descriptor, path, waits=True)
        yield
    finally:
        os.close(descriptor)
