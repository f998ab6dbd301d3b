"""Read a checkpoint: everything about it is checked on opening, its tensors when they are read."""

from __future__ import annotations

import difflib
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from cstool.errors import CheckpointError
from cstool.store.checkpoint_format import (
    CSTOOL_VERSION,
    DTYPES,
    FORMAT_VERSION,
    SIGNATURE,
    SPEC,
    SUCCESS,
    VERSION,
    metadata_name,
)
from cstool.store.protocol import check_rows

_VERIFY_BYTES = 4 * 2**20
_EARLIER = "take an earlier checkpoint"


@dataclass(frozen=True)
class _Stored:
    """A tensor and where its bytes are."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    crc32: int

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class CheckpointReader:
    """An open checkpoint, a context manager. Reading is safe from several threads.

    HDF5 is asked for the layout once; after that, bytes come from the file directly.

    Args:
        path: the file

    Raises:
        CheckpointError: it is not a whole checkpoint of this format
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.cstool_version = ""
        self._tensors: dict[str, _Stored] = {}
        self._values: dict[str, Any] = {}
        self._links: dict[str, str] = {}
        self._keys: list[str] = []
        self._descriptor = self._open()
        try:
            self._file_bytes = os.fstat(self._descriptor).st_size
            if os.pread(self._descriptor, len(SIGNATURE), 0) != SIGNATURE:
                raise CheckpointError(
                    f"{self.path}: a checkpoint must be an HDF5 file, this one is not",
                    "checkpoints of cstool are called checkpoint_{step}.mdl",
                )
            self._read_layout()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def keys(self) -> list[str]:
        """Return all keys, of tensors, links and values, in the order of writing."""
        return list(self._keys)

    def tensor_names(self) -> list[str]:
        """Return the keys of all tensors that are stored (links aside), in the order of writing."""
        return list(self._tensors)

    def link_of(self, key: str) -> str | None:
        """Return the tensor that a key is a link to, or None."""
        return self._links.get(key)

    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of a tensor or of what a link points to.

        Raises:
            CheckpointError: there is no such tensor
        """
        return self._tensor(key).shape

    def dtype(self, key: str) -> str:
        """Return the name of a tensor's dtype, such as "float32".

        Raises:
            CheckpointError: there is no such tensor
        """
        return self._tensor(key).dtype

    def nbytes(self, key: str) -> int:
        """Return the size of a tensor [bytes].

        Raises:
            CheckpointError: there is no such tensor
        """
        return self._tensor(key).nbytes

    def value(self, key: str) -> Any:
        """Return a value.

        Raises:
            CheckpointError: there is no such value
        """
        if key not in self._values:
            raise self._lacks("value", key, list(self._values))
        return self._values[key]

    def values(self, prefix: str = "") -> dict[str, Any]:
        """Return the values whose key is `prefix` or begins with it and a dot; all of them for no prefix."""
        return {k: v for k, v in self._values.items() if not prefix or k == prefix or k.startswith(f"{prefix}.")}

    def read(
        self, key: str, out: NDArray[Any] | None = None, start: int | None = None, stop: int | None = None
    ) -> NDArray[Any]:
        """Read a tensor, or a range of its rows. The checksum is verified when all of it is read.

        Args:
            key: of a tensor or a link
            out: receives the rows, C-contiguous, of their shape and dtype; None for a new array
            start, stop: the range of rows; None for the first and the end

        Raises:
            CheckpointError: there is no such tensor, or it is damaged
            ValueError: the rows are out of range, or `out` does not fit
        """
        tensor = self._tensor(key)
        first, last = start or 0, tensor.rows if stop is None else stop
        if not tensor.shape and (start is not None or stop is not None):
            raise ValueError(f"{key}: a scalar has no rows to choose from")
        check_rows(key, tensor.rows, first, last)
        shape = (last - first, *tensor.shape[1:]) if tensor.shape else ()
        if out is None:
            out = np.empty(shape, tensor.dtype)
        elif out.shape != shape or out.dtype != tensor.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"{key}: out must be C-contiguous {shape} {tensor.dtype}, got {out.shape} {out.dtype}, "
                f"contiguous: {out.flags.c_contiguous}"
            )
        data = out.reshape(-1).view(np.uint8)
        self._read_at(tensor.offset + _row_bytes(tensor) * first, data)
        if last - first == tensor.rows:
            self._check_crc32(key, tensor, zlib.crc32(data.data))
        return out

    def chunks(self, key: str, rows: int) -> Iterator[NDArray[Any]]:
        """Yield a tensor by `rows` rows at a time, each in a new array; a damaged one is noticed after the last.

        Raises:
            CheckpointError: there is no such tensor, or it is damaged
            ValueError: rows is not positive
        """
        tensor = self._tensor(key)
        if rows < 1:
            raise ValueError(f"{key}: rows must be at least 1, got {rows}")
        if not tensor.shape:
            yield self.read(key)
            return
        crc32 = 0
        for start in range(0, tensor.rows, rows):
            chunk = np.empty((min(rows, tensor.rows - start), *tensor.shape[1:]), tensor.dtype)
            data = chunk.reshape(-1).view(np.uint8)
            self._read_at(tensor.offset + _row_bytes(tensor) * start, data)
            crc32 = zlib.crc32(data.data, crc32)
            yield chunk
        self._check_crc32(key, tensor, crc32)

    def verify(self, key: str) -> None:
        """Verify the checksum of a tensor, in bounded memory.

        Raises:
            CheckpointError: there is no such tensor, or it is damaged
        """
        tensor = self._tensor(key)
        buffer, crc32 = np.empty(min(_VERIFY_BYTES, tensor.nbytes), np.uint8), 0
        for position in range(0, tensor.nbytes, _VERIFY_BYTES):
            part = buffer[: tensor.nbytes - position]
            self._read_at(tensor.offset + position, part)
            crc32 = zlib.crc32(part.data, crc32)
        self._check_crc32(key, tensor, crc32)

    def verify_all(self) -> None:
        """Verify the checksums of all tensors.

        Raises:
            CheckpointError: naming the first that is damaged
        """
        for key in self._tensors:
            self.verify(key)

    def _open(self) -> int:
        try:
            kind = os.stat(self.path).st_mode
            if stat.S_ISDIR(kind):
                raise CheckpointError(
                    f"{self.path}: a checkpoint must be a file, this is a folder",
                    "name one of the .mdl files in it; cstool checkpoint list shows them",
                )
            if not stat.S_ISREG(kind):
                raise CheckpointError(f"{self.path}: a checkpoint must be a regular file, this is not one")
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: a checkpoint must be a file that can be read, got: {error.strerror}",
                "cstool checkpoint list shows the checkpoints of a folder",
            ) from error

    def _read_layout(self) -> None:
        """Read and check everything but the tensors' bytes."""
        try:
            with h5py.File(self.path, "r", locking=False) as h5:
                self._check_kind(h5)
                self.cstool_version = _text(h5, CSTOOL_VERSION)
                spec = json.loads(_text(h5, SPEC))
                keys = spec if isinstance(spec, list) else self._long_json(h5, spec["dataset"])
                for key in keys:
                    self._read_key(h5, key)
                self._keys = keys
        except CheckpointError:
            raise
        except Exception as error:
            # Whatever HDF5, h5py or JSON trip over here, they trip over the file.
            raise CheckpointError(
                f"{self.path}: the checkpoint is damaged or cut short ({self._file_bytes} bytes)", _EARLIER
            ) from error
        if missing := [target for target in self._links.values() if target not in self._tensors]:
            self._refuse(missing[0], "a link points to it but it is not there")

    def _check_kind(self, h5: h5py.File) -> None:
        if VERSION not in h5.attrs:
            raise CheckpointError(
                f"{self.path}: must be a checkpoint, this is an HDF5 file of another kind",
                "checkpoints of cstool are called checkpoint_{step}.mdl",
            )
        version = h5.attrs[VERSION]
        version = version.decode("ascii", "replace") if isinstance(version, bytes) else str(version)
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{self.path}: the version of the checkpoint format must be {FORMAT_VERSION}, got {version}",
                "versions 0.x are the vendor's own; others belong to another version of cstool",
            )
        if SUCCESS not in h5.attrs:
            raise CheckpointError(f"Cannot load partially written checkpoint at {self.path}", _EARLIER)

    def _read_key(self, h5: h5py.File, key: str) -> None:
        metadata = json.loads(_text(h5, metadata_name(key)))
        match metadata["kind"]:
            case "tensor":
                self._tensors[key] = self._locate(h5, key)
            case "link":
                self._links[key] = metadata["target"]
            case "value" if "dataset" in metadata:
                self._values[key] = self._long_json(h5, metadata["dataset"])
            case "value":
                self._values[key] = metadata["value"]
            case kind:
                self._refuse(key, f"its kind must be tensor, link or value, got {kind}")

    def _long_json(self, h5: h5py.File, name: str) -> Any:
        stored = self._locate(h5, name)
        data = np.empty(stored.nbytes, np.uint8)
        self._read_at(stored.offset, data)
        self._check_crc32(name, stored, zlib.crc32(data.data))
        return json.loads(data.tobytes())

    def _locate(self, h5: h5py.File, name: str) -> _Stored:
        """Return where a dataset is, after checking that it is plain bytes inside this file."""
        if not isinstance(h5.get(name, getlink=True), h5py.HardLink):
            self._refuse(name, "it must be in the file itself, it is a link out of its place")
        dataset = h5[name]
        if not isinstance(dataset, h5py.Dataset):
            self._refuse(name, "it must be a dataset")
        layout = dataset.id.get_create_plist()
        plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and not layout.get_nfilters()
        if not plain or layout.get_external_count():
            self._refuse(name, "it must be contiguous, uncompressed and in the file itself")
        shape, dtype = dataset.shape, dataset.dtype.name
        if shape is None or dtype not in DTYPES or not dataset.dtype.isnative:
            self._refuse(name, f"its dtype must be one of {', '.join(DTYPES)} of this machine")
        if [dtype, list(shape)] != [_text(dataset, "dtype"), json.loads(_text(dataset, "shape"))]:
            self._refuse(name, "dtype and shape must be those of its attributes")
        offset = dataset.id.get_offset()
        stored = _Stored(shape, dtype, offset or 0, int(dataset.attrs["crc32"]))
        if (offset is None and stored.nbytes) or stored.offset + stored.nbytes > self._file_bytes:
            self._refuse(name, f"its {stored.nbytes} bytes must lie in the file, which has {self._file_bytes}")
        return stored

    def _tensor(self, key: str) -> _Stored:
        found = self._tensors.get(self._links.get(key, key))
        if found is None:
            raise self._lacks("tensor", key, [*self._tensors, *self._links])
        return found

    def _read_at(self, offset: int, data: NDArray[np.uint8]) -> None:
        view = data.data
        while view:
            count = os.preadv(self._descriptor, [view], offset)
            if count == 0:
                raise CheckpointError(f"{self.path}: the file was cut short after it was opened", _EARLIER)
            offset, view = offset + count, view[count:]

    def _check_crc32(self, key: str, tensor: _Stored, crc32: int) -> None:
        if crc32 != tensor.crc32:
            self._refuse(key, f"its checksum must be {tensor.crc32:08x}, got {crc32:08x}")

    def _refuse(self, key: str, why: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: {key} is damaged: {why}", _EARLIER)

    def _lacks(self, kind: str, key: str, present: list[str]) -> CheckpointError:
        nearest = difflib.get_close_matches(key, present, 1)
        hint = f"the nearest is {nearest[0]}" if nearest else None
        return CheckpointError(f"{self.path}: the checkpoint has no {kind} {key}", hint)


def _row_bytes(tensor: _Stored) -> int:
    return tensor.nbytes // max(1, tensor.rows)


def _text(owner: Any, name: str) -> str:
    value = owner.attrs[name]
    if not isinstance(value, bytes):
        raise ValueError(f"{name} must be text of fixed length")
    return value.decode("ascii")
