"""Write a checkpoint: tensors streamed in chunks, values as JSON, all or nothing."""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

import cstool
from cstool.foundation.errors import CheckpointError
from cstool.training.store.block_file import REMEDIES
from cstool.training.store.checkpoint_format import (
    CSTOOL_VERSION,
    DIGEST,
    DTYPES,
    FORMAT_VERSION,
    LIBVER,
    LONGEST_ATTRIBUTE_BYTES,
    SPEC,
    SUCCESS,
    VERSION,
    CheckpointDigest,
    check_key,
    metadata_name,
)
from cstool.training.store.contiguous import create_contiguous, place_of
from cstool.training.store.crc32 import combine_crc32, crc32
from cstool.training.store.pending_file import FileRange, PendingFile

METADATA_BYTES = 2**20
"""set aside beside the tensors, for keys and values [bytes]"""

_UNTOUCHED = "the previous checkpoint is untouched"
_Piece = NDArray[Any] | FileRange


class CheckpointWriter:
    """A checkpoint on its way: a context manager, at whose end the file has its name, durably, or is gone.

    Tensor data bypass HDF5: it lays the file out, the bytes go to their place directly. All methods raise
    CheckpointError where the disk fails, and ValueError for a key that is taken or reserved.

    Args:
        path: the file to be; never overwritten
        total_bytes: size of the tensors, for the disk to set aside [bytes]
        cstool_version: for a copy, the version that wrote the source

    Raises:
        CheckpointError: the file exists, or cannot be written
    """

    def __init__(
        self, path: str | os.PathLike[str], total_bytes: int = 0, cstool_version: str = cstool.__version__
    ) -> None:
        self.path = Path(path)
        self._cstool_version = cstool_version
        self._need_bytes = total_bytes + METADATA_BYTES
        self._keys: dict[str, str] = {}
        self._digest = CheckpointDigest(cstool_version)
        if os.path.lexists(self.path):
            raise self._exists()
        try:
            if shutil.disk_usage(self.path.parent).free < self._need_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._file = PendingFile(self.path)
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            with self._reporting():
                self._h5 = h5py.File(self._file, "w", libver=LIBVER, locking=False)
                self._file.reserve(self._need_bytes)
        except BaseException:
            self._discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._discard()
            return
        try:
            self._finish()
        except BaseException:
            self._discard()
            raise

    def add_tensor(self, key: str, shape: Sequence[int], dtype: str, chunks: Iterable[NDArray[Any]]) -> None:
        """Add a tensor from chunks, ranges of its rows in order (of a scalar one), or raise ValueError if some lack."""
        shape = tuple(int(extent) for extent in shape)
        self.add_pieces(key, shape, dtype, _elements(key, shape, dtype, chunks))

    def add_pieces(self, key: str, shape: Sequence[int], dtype: str, pieces: Iterable[_Piece]) -> None:
        """Add a tensor from its elements, laid out row by row, or raise ValueError if they do not make it up.

        Pieces are one-dimensional, or ranges of other files, whose bytes need not pass through here.
        """
        if dtype not in DTYPES:
            raise ValueError(f"{key}: the dtype of a tensor must be one of {', '.join(DTYPES)}, got {dtype}")
        self._add_key(key, {"kind": "tensor"})
        self._digest.add_tensor(key, shape, dtype, self._write_dataset(key, tuple(shape), dtype, pieces))

    def add_value(self, key: str, value: object) -> None:
        """Add anything that JSON can say, or raise TypeError."""
        text = json.dumps(value)
        if len(text) <= LONGEST_ATTRIBUTE_BYTES:
            self._add_key(key, {"kind": "value", "value": value})
        else:
            self._add_key(key, {"kind": "value", "dataset": metadata_name(key)})
            self._write_text(metadata_name(key), text)
        self._digest.add_value(key, json.loads(text))

    def link(self, key: str, target: str) -> None:
        """Add a key for a tensor that is already there (a tied weight is stored once), or raise ValueError."""
        if self._keys.get(target) != "tensor":
            raise ValueError(f"{key}: a link must point to a tensor that was added before, got {target}")
        self._add_key(key, {"kind": "link", "target": target})
        self._digest.add_link(key, target)

    def _add_key(self, key: str, metadata: dict[str, Any]) -> None:
        check_key(key)
        if key in self._keys:
            raise ValueError(f"{key}: a key must be added once, it is there already")
        self._keys[key] = metadata["kind"]
        self._set_attribute(self._h5, metadata_name(key), json.dumps(metadata))

    def _write_text(self, name: str, text: str) -> None:
        data = np.frombuffer(text.encode("ascii"), np.uint8)
        self._write_dataset(name, data.shape, "uint8", [data])

    def _write_dataset(self, name: str, shape: tuple[int, ...], dtype: str, pieces: Iterable[_Piece]) -> int:
        """Write a dataset, and return its checksum."""
        with self._reporting():
            dataset = create_contiguous(self._h5, name, shape, dtype)
            place = place_of(dataset.id)
        rule = f"{name}: the pieces must make up {shape} {dtype}"
        checksum, position, end = 0, place.offset, place.offset + place.nbytes
        for piece in pieces:
            kind = np.dtype(dtype) if isinstance(piece, FileRange) else piece.dtype
            if kind != dtype or position + piece.nbytes > end:
                raise ValueError(f"{rule}, there is more of {kind}")
            if isinstance(piece, FileRange):
                with self._reporting():
                    self._file.copy_at(position, piece)
                checksum = combine_crc32(checksum, piece.crc32, piece.nbytes)
            else:
                data = piece.view(np.uint8)
                checksum = crc32(data.data, checksum)
                with self._reporting():
                    self._file.write_at(position, data)
            position += piece.nbytes
        if position != end:
            raise ValueError(f"{rule}, {end - position} bytes are missing")
        self._set_attribute(dataset, "dtype", dtype)
        self._set_attribute(dataset, "shape", json.dumps(shape))
        with self._reporting():
            dataset.attrs["crc32"] = np.uint32(checksum)
        return checksum

    def _set_attribute(self, owner: Any, name: str, text: str) -> None:
        # Of fixed length: HDF5 keeps text of variable length apart, where it has no checksum.
        with self._reporting():
            owner.attrs[name] = np.bytes_(text.encode("ascii"))

    def _finish(self) -> None:
        """Write the attributes of the whole, then the mark of success, then give the file its name."""
        spec = json.dumps(list(self._keys))
        if len(spec) > LONGEST_ATTRIBUTE_BYTES:
            self._write_text(SPEC, spec)
            spec = json.dumps({"dataset": SPEC})
        self._set_attribute(self._h5, SPEC, spec)
        self._set_attribute(self._h5, VERSION, FORMAT_VERSION)
        self._set_attribute(self._h5, CSTOOL_VERSION, self._cstool_version)
        self._set_attribute(self._h5, DIGEST, self._digest.hex())
        with self._reporting():
            self._h5.flush()
            self._file.sync()
            self._h5.attrs[SUCCESS] = True
            self._h5.close()
        with self._reporting():
            self._file.commit()

    def _discard(self) -> None:
        # HDF5 may complain about failed writes: the reason is already on its way to the user.
        with contextlib.suppress(Exception):
            self._h5.close()
        self._file.discard()

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn errors of the disk, also ones hidden from HDF5, into one with advice."""
        try:
            yield
        except FileExistsError as error:
            raise self._exists() from error
        except Exception as error:
            first = self._file.first_error or error
            if isinstance(first, OSError):
                raise self._cannot_write(first) from first
            raise
        if self._file.first_error is not None:
            raise self._cannot_write(self._file.first_error) from self._file.first_error

    def _exists(self) -> CheckpointError:
        return CheckpointError(f"Checkpoint at '{self.path}' already exists", "delete it or choose another name")

    def _cannot_write(self, error: OSError) -> CheckpointError:
        try:
            free = f"{shutil.disk_usage(self.path.parent).free} bytes are free"
        except OSError:
            free = "the folder cannot be looked at"
        remedy = REMEDIES.get(error.errno or 0)
        return CheckpointError(
            f"{self.path}: a checkpoint of {self._need_bytes} bytes must be writable here ({free}), "
            f"got: {error.strerror or error}",
            _UNTOUCHED if remedy is None else f"{remedy}; {_UNTOUCHED}",
        )


def _elements(key: str, shape: tuple[int, ...], dtype: str, chunks: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Yield the elements of each chunk, after a check that it is rows of the tensor."""
    rows, total = 0, shape[0] if shape else 1
    for chunk in chunks:
        if chunk.dtype != dtype or chunk.shape[1:] != shape[1:] or chunk.ndim != len(shape):
            raise ValueError(f"{key}: a chunk must be rows of {shape} {dtype}, got {chunk.shape} {chunk.dtype}")
        rows += chunk.shape[0] if shape else 1
        if rows > total:
            break
        yield np.ascontiguousarray(chunk).reshape(-1)
    if rows != total:
        raise ValueError(f"{key}: the chunks must have {total} rows together, they do not")
