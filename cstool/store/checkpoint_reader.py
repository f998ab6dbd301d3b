"""Read a checkpoint: everything about it is checked on opening, its tensors when they are read."""

import math
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cstool.errors import CheckpointError
from cstool.store.checked_state import check_indices, check_state
from cstool.store.checkpoint_format import WITHOUT_DIGEST
from cstool.store.checkpoint_layout import StoredTensor, check_crc32, read_at, read_layout
from cstool.store.crc32 import crc32
from cstool.store.protocol import check_rows
from cstool.store.saved_state import PIECE, Meter, Progress, SavedState, no_progress


class CheckpointReader(SavedState):
    """An open checkpoint, a context manager. Reading is safe from several threads.

    HDF5 is asked for the layout once; after that, bytes come from the file directly.

    Args:
        path: the file

    Raises:
        DamagedCheckpointError: it is a checkpoint, but not a whole one
        CheckpointError: it is none of this format
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._descriptor = self._open()
        try:
            layout = read_layout(self.path, self._descriptor)
        except BaseException:
            self.close()
            raise
        self.format_version, self.cstool_version = layout.format_version, layout.cstool_version
        self.is_bound = self.format_version != WITHOUT_DIGEST
        self._keys, self._tensors, self._links, self._values = layout.keys, layout.tensors, layout.links, layout.values

    def close(self) -> None:
        """See `Opened.close`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def shape(self, key: str) -> tuple[int, ...]:
        """See `SavedState.shape`."""
        return self._tensor(key).shape

    def dtype(self, key: str) -> str:
        """See `SavedState.dtype`."""
        return self._tensor(key).dtype

    def nbytes(self, key: str) -> int:
        """See `SavedState.nbytes`."""
        return self._tensor(key).nbytes

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
        self._read_at(tensor.offset + tensor.row_bytes * first, data)
        if last - first == tensor.rows:
            self._check_crc32(key, tensor, crc32(data.data))
        return out

    def in_order(self, key: str) -> Callable[[NDArray[Any], int, int], object]:
        """Return a function read(out, start, stop) for range after range of rows, in order and without gaps.

        So a tensor is read once, piece by piece, and its checksum is verified with the last one.

        Raises:
            CheckpointError: there is no such tensor, or (by the function) it is damaged
            ValueError: (by the function) the rows are not the next ones
        """
        tensor, checksum, next_row = self._tensor(key), 0, 0

        def read_next(out: NDArray[Any], start: int, stop: int) -> None:
            nonlocal checksum, next_row
            if start != next_row:
                raise ValueError(f"{key}: rows must be read in order, the next is {next_row}, got {start}")
            self.read(key, out, start, stop)
            next_row = stop
            if stop - start == tensor.rows:
                return  # `read` has verified it
            checksum = crc32(out.reshape(-1).view(np.uint8).data, checksum)
            if stop == tensor.rows:
                self._check_crc32(key, tensor, checksum)

        return read_next

    def pieces(self, key: str) -> Iterator[NDArray[Any]]:
        """See `SavedState.pieces`."""
        tensor = self._tensor(key)
        count, checksum = math.prod(tensor.shape), 0
        buffer = np.empty(min(PIECE, count), tensor.dtype)
        for start in range(0, count, PIECE):
            piece = buffer[: count - start]
            data = piece.view(np.uint8)
            self._read_at(tensor.offset + start * buffer.itemsize, data)
            checksum = crc32(data.data, checksum)
            if start + PIECE >= count:
                self._check_crc32(key, tensor, checksum)
            yield piece

    def verify_all(self, progress: Progress = no_progress) -> None:
        """See `SavedState.verify_all`."""
        sizes = check_state(self)
        meter = Meter(sum(map(self.nbytes, self._tensors)), progress)
        for key in self._tensors:
            pieces = meter.through(self.pieces(key))
            if key in sizes:
                pieces = check_indices(pieces, sizes[key], f"{self.path}: {key}")
            for _ in pieces:
                pass

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

    def _tensor(self, key: str) -> StoredTensor:
        found = self._tensors.get(self._links.get(key, key))
        if found is None:
            raise self._lacks("tensor", key, [*self._tensors, *self._links])
        return found

    def _read_at(self, offset: int, data: NDArray[np.uint8]) -> None:
        read_at(self.path, self._descriptor, offset, data)

    def _check_crc32(self, key: str, tensor: StoredTensor, checksum: int) -> None:
        check_crc32(self.path, self._links.get(key, key), tensor, checksum)
