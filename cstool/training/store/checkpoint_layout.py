"""Places of everything in a checkpoint: read once through HDF5, and checked, since a file may come from anywhere."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
from numpy.typing import NDArray

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.foundation.watched_hdf5 import open_watched
from cstool.training.store.checkpoint_format import (
    CSTOOL_VERSION,
    DIGEST,
    FORMAT_VERSION,
    SIGNATURE,
    SPEC,
    SUCCESS,
    VERSION,
    WITHOUT_DIGEST,
    CheckpointDigest,
    check_key,
    metadata_name,
)
from cstool.training.store.contiguous import Place, find_contiguous
from cstool.training.store.crc32 import crc32
from cstool.training.store.file_layout import is_store, record_path

TAKE_ANOTHER = "take an earlier checkpoint"
"""hint for a damaged file"""

_NAMING = "checkpoints of cstool are called checkpoint_{step}.mdl"


@dataclass(frozen=True)
class Layout:
    """The content of a checkpoint; `keys` are in the order of writing, and so are the others."""

    keys: list[str]
    tensors: dict[str, Place]
    links: dict[str, str]
    values: dict[str, Any]
    format_version: str
    cstool_version: str

    def digest(self) -> str:
        """Return the digest of all of it, by the checksums in the file."""
        digest = CheckpointDigest(self.cstool_version)
        for key in self.keys:
            if key in self.tensors:
                tensor = self.tensors[key]
                digest.add_tensor(key, tensor.shape, tensor.dtype, tensor.crc32)
            elif key in self.links:
                digest.add_link(key, self.links[key])
            else:
                digest.add_value(key, self.values[key])
        return digest.hex()


def read_layout(path: Path, descriptor: int) -> Layout:
    """Read the layout of a checkpoint, also open for reading as `descriptor`.

    Raises:
        DamagedCheckpointError: it is a checkpoint, but not a whole one
        CheckpointError: it is none of this format
    """
    if os.pread(descriptor, len(SIGNATURE), 0) != SIGNATURE:
        raise CheckpointError(f"{path}: a checkpoint must be an HDF5 file, this one is not", _NAMING)
    try:
        with open_watched(path) as h5:
            version = _check_kind(path, h5)
            layout = _LayoutReader(path, descriptor, h5).read(version)
            if version != WITHOUT_DIGEST and (found := layout.digest()) != (written := _text(h5.id, DIGEST)):
                raise DamagedCheckpointError(
                    f"{path}: its keys, checksums and values must be those that were written together, with the digest "
                    f"{written[:16]}, got {found[:16]}",
                    TAKE_ANOTHER,
                )
            return layout
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:
        # All errors of HDF5, h5py and JSON here are faults of the file.
        size_bytes = os.fstat(descriptor).st_size
        raise DamagedCheckpointError(
            f"{path}: the checkpoint is damaged or cut short ({size_bytes} bytes)", TAKE_ANOTHER
        ) from error


def read_at(path: Path, descriptor: int, offset: int, data: NDArray[np.uint8]) -> None:
    """Fill an array with the bytes of a file from an offset on [bytes], or raise DamagedCheckpointError."""
    view = data.data
    while view:
        try:
            count = os.preadv(descriptor, [view], offset)
        except OSError as error:
            raise DamagedCheckpointError(f"{path}: cannot be read: {error.strerror}", TAKE_ANOTHER) from error
        if count == 0:
            raise DamagedCheckpointError(f"{path}: the file was cut short after it was opened", TAKE_ANOTHER)
        offset, view = offset + count, view[count:]


def check_crc32(path: Path, key: str, tensor: Place, checksum: int) -> None:
    """Compare the checksum of the bytes read with the one in the file, or raise DamagedCheckpointError."""
    if checksum != tensor.crc32:
        _refuse(path, key, f"its checksum must be {tensor.crc32:08x}, got {checksum:08x}")


def _check_kind(path: Path, h5: h5py.File) -> str:
    """Return the version of the format, after checking that this is a checkpoint that was written to its end."""
    if "kind" in h5.attrs and is_store(path):
        way = "it has not been committed, so nobody can go on from it"
        if os.path.lexists(record_path(path)):
            copy = f"cstool checkpoint copy {shlex.quote(str(path))} FILE makes a checkpoint of it"
            way = f"{copy}; --model_dir {shlex.quote(str(path.parent))} goes on with it"
        raise CheckpointError(f"{path}: must be a checkpoint, this is a MemoryX file", way)
    if VERSION not in h5.attrs:
        raise CheckpointError(f"{path}: must be a checkpoint, this is an HDF5 file of another kind", _NAMING)
    version = h5.attrs[VERSION]
    version = version.decode("ascii", "replace") if isinstance(version, bytes) else str(version)
    if version not in (WITHOUT_DIGEST, FORMAT_VERSION):
        raise CheckpointError(
            f"{path}: the version of the checkpoint format must be {WITHOUT_DIGEST} or {FORMAT_VERSION}, got {version}",
            "versions 0.x are the vendor's own, which `cstool checkpoint convert` reads; others belong to another "
            "version of cstool",
        )
    if SUCCESS not in h5.attrs:
        raise DamagedCheckpointError(f"Cannot load partially written checkpoint at {path}", TAKE_ANOTHER)
    return version


class _LayoutReader:
    """The layout of one open file, read key by key."""

    def __init__(self, path: Path, descriptor: int, h5: h5py.File) -> None:
        self.path, self.descriptor, self.h5 = path, descriptor, h5
        self.file_bytes = os.fstat(descriptor).st_size
        self.tensors: dict[str, Place] = {}
        self.links: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def read(self, format_version: str) -> Layout:
        spec = json.loads(_text(self.h5.id, SPEC))
        keys: list[str] = spec if isinstance(spec, list) else self._long_json(spec["dataset"])
        if len(set(keys)) != len(keys):
            _refuse(self.path, SPEC, "every key must be in it once")
        for key in keys:
            self._read_key(key)
        written_by = _text(self.h5.id, CSTOOL_VERSION)
        return Layout(keys, self.tensors, self.links, self.values, format_version, written_by)

    def _read_key(self, key: str) -> None:
        try:
            check_key(key)
        except ValueError as error:
            _refuse(self.path, SPEC, str(error))
        metadata = json.loads(_text(self.h5.id, metadata_name(key)))
        match metadata["kind"]:
            case "tensor":
                self.tensors[key] = self._locate(key)
            case "link":
                target = metadata["target"]
                if target not in self.tensors:
                    _refuse(self.path, key, f"it must be a link to a tensor before it, got {target}")
                self.links[key] = target
            case "value" if "dataset" in metadata:
                self.values[key] = self._long_json(metadata["dataset"])
            case "value":
                self.values[key] = metadata["value"]
            case kind:
                _refuse(self.path, key, f"its kind must be tensor, link or value, got {kind}")

    def _long_json(self, name: str) -> Any:
        stored = self._locate(name)
        data = np.empty(stored.nbytes, np.uint8)
        read_at(self.path, self.descriptor, stored.offset, data)
        check_crc32(self.path, name, stored, crc32(data.data))
        return json.loads(data.tobytes())

    def _locate(self, name: str) -> Place:
        """Find a dataset, and check that it is plain bytes inside this file."""
        try:
            place, dataset = find_contiguous(self.h5, name, self.file_bytes)
        except ValueError as error:
            _refuse(self.path, name, str(error))
        if [place.dtype, list(place.shape)] != [_text(dataset, "dtype"), json.loads(_text(dataset, "shape"))]:
            _refuse(self.path, name, "its dtype and shape must be those of its attributes")
        return place._replace(crc32=int(_attribute(dataset, "crc32")))


def _refuse(path: Path, key: str, why: str) -> NoReturn:
    raise DamagedCheckpointError(f"{path}: {key} is damaged: {why}", TAKE_ANOTHER)


def _text(owner: h5py.h5g.GroupID | h5py.h5d.DatasetID, name: str) -> str:
    value = _attribute(owner, name)
    if not isinstance(value, bytes):
        raise ValueError(f"{name} must be text of fixed length")
    return value.decode("ascii")


def _attribute(owner: h5py.h5g.GroupID | h5py.h5d.DatasetID, name: str) -> Any:
    """Read an attribute: bytes for text of fixed length, or numbers."""
    attribute = h5py.h5a.open(owner, name.encode("utf-8"))
    if attribute.dtype.kind == "O":
        raise ValueError(f"{name} must be of fixed length")
    value = np.empty(attribute.shape, attribute.dtype)
    attribute.read(value)
    return value[()]
