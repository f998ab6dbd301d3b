"""The commit record of a MemoryX file: its content as of a step, and the places of it. It is replaced in one go.

A text file beside the HDF5 file: one line of JSON, one with its checksum. It names the file that it belongs to by an
identity drawn when that was made, so that files swapped between runs are told apart.
"""

import json
import os
import stat
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DamagedCheckpointError, StoreError
from cstool.training.store.block_file import cannot
from cstool.training.store.checkpoint_format import SPARSITY, check_key
from cstool.training.store.shard_record import SHARD, Shard


class Extent(NamedTuple):
    """Rows `start` to `stop` of an array, and the slot that they are in."""

    start: int
    stop: int
    slot: int
    crc32: int | None
    """of their bytes; None: not computed yet"""


class Extents:
    """All rows of one array, cut into extents in order, without gaps; empty extents do not count."""

    def __init__(self, extents: Iterable[Extent]) -> None:
        self._set([extent for extent in extents if extent.start < extent.stop])

    def _set(self, extents: list[Extent]) -> None:
        self._extents = extents
        self._starts = [extent.start for extent in extents]

    def copy(self) -> "Extents":
        """Return the same, to be changed apart."""
        return Extents(self._extents)

    def all(self) -> tuple[Extent, ...]:
        """Return all extents."""
        return tuple(self._extents)

    def holding(self, row: int) -> Extent:
        """Return the extent that a row is in."""
        return self._extents[bisect_right(self._starts, row) - 1]

    def within(self, start: int, stop: int) -> list[Extent]:
        """Extents of a range of rows. A part of an extent has no checksum."""
        found = []
        for index in range(max(0, bisect_right(self._starts, start) - 1), len(self._extents)):
            extent = self._extents[index]
            if extent.start >= stop:
                break
            if extent.stop <= start or start == stop:
                continue
            if start <= extent.start and extent.stop <= stop:
                found.append(extent)
            else:
                found.append(Extent(max(start, extent.start), min(stop, extent.stop), extent.slot, None))
        return found

    def replace(self, new: Extent) -> None:
        """Put a range of rows elsewhere."""
        if new.start == new.stop:
            return
        last = self._extents[-1].stop
        before, after = self.within(0, new.start), self.within(new.stop, last)
        self._set([*before, new, *after])


KIND = "commit record of a cstool MemoryX file, version 1"
LONGEST_BYTES = 2**28
"""of a record; far more than any has [bytes]"""


@dataclass(frozen=True)
class CommitRecord:
    """The content of a MemoryX file as of one step."""

    identity: str
    """of the HDF5 file that it belongs to"""
    values: Mapping[str, Any]
    """as in a checkpoint: step, data cursor, seed, choices, params; a shard has `SHARD`, too"""
    links: Mapping[str, str]
    """tied names and the arrays that they are links to; a shard has the links of the whole model"""
    arrays: Mapping[str, tuple[Extent, ...]]
    """places of the rows of each array"""
    older: "CommitRecord | None" = None
    """the commit before this one, whose slots may not have been overwritten yet; it has none itself"""

    def __post_init__(self) -> None:
        # A record that kept the one before the one before it, and so on, would keep all commits of a run.
        if self.older is not None and self.older.older is not None:
            object.__setattr__(self, "older", replace(self.older, older=None))

    @property
    def step(self) -> int:
        """The step after which it was made."""
        step: int = self.values["global_step"]
        return step

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that can be gone on from, this commit's first."""
        return (self.step,) if self.older is None else (self.step, self.older.step)

    @property
    def shard(self) -> Shard | None:
        """The shard in the file; None where it has the whole model."""
        value = self.values.get(SHARD)
        return None if value is None else Shard.parse(value)

    def of_step(self, path: Path, step: int) -> "CommitRecord":
        """Return this record or the older one, by its step, or raise StoreError about the file at `path`."""
        if step == self.step:
            return self
        if self.older is not None and step == self.older.step:
            return self.older
        held = " and ".join(map(str, self.steps))
        raise StoreError(f"{path}: the MemoryX file must have been committed at step {step}, it has at step {held}")

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "kind": KIND,
            "identity": self.identity,
            "values": dict(self.values),
            "links": dict(self.links),
            "arrays": {name: [list(extent) for extent in extents] for name, extents in self.arrays.items()},
            "older": None if self.older is None else self.older.as_dict(),
        }


def write_record(path: Path, record: CommitRecord) -> None:
    """Write a record in place of the one before it, durably, or raise StoreError and leave that as it was."""
    text = json.dumps(record.as_dict(), separators=(",", ":"))
    try:
        write_replacing(path, f"{text}\n{zlib.crc32(text.encode()):08x}\n")
    except OSError as error:
        raise cannot(path, "be written", error) from error


def read_record(path: Path) -> CommitRecord | None:
    """Read a record; None where there is none. One that cannot be read, or is damaged, raises CheckpointError."""
    try:
        content = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot(path, "be read", error) from error
    text, _, rest = content.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(text):
        raise DamagedCheckpointError(f"{path}: the commit record is damaged or cut short")
    try:
        document = json.loads(text)
        return _parse(document, None if document["older"] is None else _parse(document["older"], None))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise DamagedCheckpointError(f"{path}: must be a {KIND}, this is of another kind or version") from error


def _read(path: Path) -> bytes:
    # Neither a pipe nor a file without end keeps a reader waiting.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.fstat(descriptor).st_size > LONGEST_BYTES:
            return b""
        return file.read()


def _parse(document: dict[str, Any], older: CommitRecord | None) -> CommitRecord:
    values, links, arrays = document["values"], document["links"], document["arrays"]
    keys = [*values, *links, *arrays]
    for key in keys:
        check_key(key)
    is_step = type(values["global_step"]) is int and values["global_step"] >= 0
    # A name tied to a weight may be in another shard than the weight.
    weights = Shard.parse(values[SHARD]).weights if SHARD in values else ()
    targets = {*arrays, *(f"model.{weight}" for weight in weights)}
    if document["kind"] != KIND or len({*keys}) != len(keys) or not {*links.values()} <= targets or not is_step:
        raise ValueError
    if not all(isinstance(sparse["non_zeros"], int) for sparse in values.get(SPARSITY, {}).values()):
        raise ValueError
    extents = {name: tuple(Extent(*map(int, entry)) for entry in found) for name, found in arrays.items()}
    return CommitRecord(str(document["identity"]), values, links, extents, older)
