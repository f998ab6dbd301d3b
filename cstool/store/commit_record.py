"""The commit record of a MemoryX file: what is in it as of a step, and where. It is replaced in one go.

A text file beside the HDF5 file: one line of JSON, one with its checksum. It names the file that it belongs to by an
identity drawn when that was made, so that files swapped between runs are told apart.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cstool.atomic_file import write_replacing
from cstool.errors import StoreError
from cstool.store.block_file import cannot
from cstool.store.extents import Extent

KIND = "commit record of a cstool MemoryX file, version 1"
NO_WAY_ON = "choose another --model_dir to start fresh, or a checkpoint with --checkpoint_path"


@dataclass(frozen=True)
class CommitRecord:
    """What a MemoryX file holds as of one step."""

    identity: str
    """of the HDF5 file that it belongs to"""
    values: Mapping[str, Any]
    """as in a checkpoint: step, data cursor, seed, choices, params"""
    links: Mapping[str, str]
    """tied names and the arrays that they are links to"""
    arrays: Mapping[str, tuple[Extent, ...]]
    """where the rows of each array are"""
    older: CommitRecord | None = None
    """the commit before this one, whose slots may not have been overwritten yet"""

    @property
    def step(self) -> int:
        """After which step it is."""
        step: int = self.values["global_step"]
        return step

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "kind": KIND,
            "identity": self.identity,
            "values": dict(self.values),
            "links": dict(self.links),
            "arrays": {name: [list(extent) for extent in extents] for name, extents in self.arrays.items()},
            "older": None if self.older is None else replace(self.older, older=None).as_dict(),
        }


def write_record(path: Path, record: CommitRecord) -> None:
    """Write a record in place of the one before it, durably.

    Raises:
        StoreError: it cannot be written; the one before it is as it was
    """
    text = json.dumps(record.as_dict(), separators=(",", ":"))
    try:
        write_replacing(path, f"{text}\n{zlib.crc32(text.encode()):08x}\n")
    except OSError as error:
        raise cannot(path, "be written", error) from error


def read_record(path: Path) -> CommitRecord | None:
    """Read a record; None where there is none.

    Raises:
        StoreError: it is damaged, or of another kind
    """
    try:
        text, _, rest = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot(path, "be read", error) from error
    if rest != b"%08x\n" % zlib.crc32(text):
        raise StoreError(f"{path}: the commit record is damaged or cut short", NO_WAY_ON)
    try:
        return _parse(json.loads(text))
    except (LookupError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: must be a {KIND}, this is of another kind or version", NO_WAY_ON) from error


def _parse(document: dict[str, Any]) -> CommitRecord:
    if document["kind"] != KIND or type(document["values"]["global_step"]) is not int:
        raise ValueError
    arrays = {name: tuple(Extent(*map(int, entry)) for entry in found) for name, found in document["arrays"].items()}
    older = None if document["older"] is None else _parse(document["older"])
    return CommitRecord(str(document["identity"]), document["values"], document["links"], arrays, older)
