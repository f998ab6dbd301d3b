"""Read a checkpoint: everything about it is checked on opening, its tensors when they are read."""

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from cstool.foundation.errors import CheckpointError
from cstool.training.store.checked_state import check_indices, check_state
from cstool.training.store.checkpoint_format import WITHOUT_DIGEST
from cstool.training.store.checkpoint_layout import check_crc32, read_at, read_layout
from cstool.training.store.contiguous import Place
from cstool.training.store.crc32 import crc32
from cstool.training.store.foreign import check_not_foreign
from cstool.training.store.saved_state import Array, Meter, Progress, SavedState, no_progress, summed_pieces


class CheckpointReader(SavedState):
    """The open file of a checkpoint, a context manager. Reading is safe from several threads.

    HDF5 is asked for the layout once; after that, bytes come from the file directly.

    Raises:
        DamagedCheckpointError: it is a checkpoint, but not a whole one
        CheckpointError: it is none of this format
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._descriptor = self._open()
        with self._or_closed():
            layout = read_layout(self.path, self._descriptor)
        self.format_version, self.cstool_version = layout.format_version, layout.cstool_version
        self.is_bound = self.format_version != WITHOUT_DIGEST
        self._keys, self._tensors, self._links, self._values = layout.keys, layout.tensors, layout.links, layout.values

    def close(self) -> None:
        """See `Opened.close`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def place(self, key: str) -> Place:
        """Where a tensor, or the target of a link, is in the file."""
        return self._tensor(key)

    def in_order(self, key: str) -> Callable[[Array, int, int], object]:
        """Return a function read(out, start, stop) for range after range of rows, in order and without gaps.

        So a tensor is read once, piece by piece, and its checksum is verified with the last one.

        Raises:
            CheckpointError: there is no such tensor, or (by the function) it is damaged
            ValueError: (by the function) the rows are not the next ones
        """
        tensor, checksum, next_row = self._tensor(key), 0, 0

        def read_next(out: Array, start: int, stop: int) -> None:
            nonlocal checksum, next_row
            if start != next_row:
                raise ValueError(f"{key}: rows must be read in order, the next is {next_row}, got {start}")
            self.read(key, out, start, stop)
            next_row = stop
            if stop - start == tensor.rows:
                return  # `read` has verified it
            checksum = crc32(out.reshape(-1).view(np.uint8).data, checksum)
            if stop == tensor.rows:
                self._check_crc32(key, checksum)

        return read_next

    def pieces(self, key: str) -> Iterator[Array]:
        """See `SavedState.pieces`."""
        tensor = self._tensor(key)
        return summed_pieces(tensor, 0, tensor.rows, self._read_at, partial(self._check_crc32, key))

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
        check_not_foreign(self.path)
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

    def _tensor(self, key: str) -> Place:
        found = self._tensors.get(self._links.get(key, key))
        if found is None:
            raise self._lacks("tensor", key, [*self._tensors, *self._links])
        return found

    def _fill(self, key: str, first: int, last: int, out: Array) -> None:
        tensor, data = self._tensor(key), out.reshape(-1).view(np.uint8)
        self._read_at(tensor.at(first), data)
        if last - first == tensor.rows:
            self._check_crc32(key, crc32(data.data))

    def _read_at(self, offset: int, out: Array) -> None:
        read_at(self.path, self._descriptor, offset, out.view(np.uint8))

    def _check_crc32(self, key: str, checksum: int) -> None:
        check_crc32(self.path, self._links.get(key, key), self._tensor(key), checksum)
