"""The saved state of a run, in any kind of file, as the checkpoint commands read it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cstool.foundation.errors import CheckpointError
from cstool.foundation.words import nearest
from cstool.training.store.contiguous import Place
from cstool.training.store.crc32 import crc32
from cstool.training.store.protocol import check_rows
from cstool.training.store.ram import aligned_empty

Array = NDArray[Any]
Progress = Callable[[int, int], object]
"""called with progress: done, in all [bytes]"""

PIECE = 2**20
"""elements of a tensor that are in memory at once"""


def no_progress(done: int, total: int) -> None:
    """Show no progress."""


class Opened(ABC):
    """Something that is open until it is closed; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _or_closed(self) -> Iterator[None]:
        """Close it where the body of a context fails."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def close(self) -> None:
        """Let go of the files. Closing twice is fine."""


class SavedState(Opened):
    """Tensors and values by key, open for reading; a context manager.

    Of a sparse weight `model.W`, its non-zeros are the tensor of that key, their positions in the weight laid out
    row by row are `model.W.indices`, and the value `sparsity` has its shape. Its arrays of optimizer state,
    `optimizer.W.*`, have the same order. A request for a tensor that is not there raises CheckpointError.
    """

    path: Path
    """the file, the first one of several"""
    format_version: str
    """of the file"""
    is_bound: bool
    """whether a digest or a commit record says that its parts belong together"""
    cstool_version: str
    """of cstool that wrote it"""
    _keys: Sequence[str]
    """of tensors, links and values, in the order of writing"""
    _links: Mapping[str, str]
    _values: Mapping[str, Any]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that it is in."""
        return (self.path,)

    def keys(self) -> list[str]:
        """All keys, of tensors, links and values, in the order of writing."""
        return list(self._keys)

    def tensor_names(self) -> list[str]:
        """Keys of all tensors that are stored (links aside), in the order of writing."""
        return [key for key in self._keys if key not in self._links and key not in self._values]

    def link_of(self, key: str) -> str | None:
        """Return the tensor that a key is a link to, or None."""
        return self._links.get(key)

    def value(self, key: str) -> Any:
        """Return a value, or raise CheckpointError."""
        if key not in self._values:
            raise self._lacks("value", key, self._values)
        return self._values[key]

    def values(self, prefix: str = "") -> dict[str, Any]:
        """Return the values whose key is `prefix` or begins with it and a dot, as JSON has them; all for no prefix."""
        values = self._values
        return {k: v for k, v in values.items() if not prefix or k == prefix or k.startswith(f"{prefix}.")}

    def _lacks(self, kind: str, key: str, present: Iterable[str]) -> CheckpointError:
        near = nearest(key, list(present))
        hint = None if near is None else f"the nearest is {near}"
        return CheckpointError(f"{self.path}: the checkpoint has no {kind} {key}", hint)

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of a tensor or of the target of a link."""
        return self._tensor(key).shape

    def dtype(self, key: str) -> str:
        """Name of a tensor's dtype, such as "float32"."""
        return self._tensor(key).dtype

    def in_order(self, key: str) -> Callable[[Array, int, int], object]:
        """Return a function read(out, start, stop) for range after range of rows, in order and without gaps."""
        return lambda out, start, stop: self.read(key, out, start, stop)

    def nbytes(self, key: str) -> int:
        """Size of a tensor [bytes]."""
        return self._tensor(key).nbytes

    def read(self, key: str, out: Array | None = None, start: int | None = None, stop: int | None = None) -> Array:
        """Read a tensor, or a range of its rows. A checkpoint verifies the checksum when all of it is read.

        Args:
            key: of a tensor or a link
            out: receives the rows, C-contiguous, of their shape and dtype; None for a new array
            start, stop: the range of rows; None for the first and the end

        Raises:
            CheckpointError: there is no such tensor, or it is damaged
            StoreError: the disk fails
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
        self._fill(key, first, last, out)
        return out

    @abstractmethod
    def _tensor(self, key: str) -> Place:
        """Return the shape and dtype of a tensor or of the target of a link."""

    @abstractmethod
    def _fill(self, key: str, first: int, last: int, out: Array) -> None:
        """Fill an array with rows of a tensor."""

    @abstractmethod
    def pieces(self, key: str) -> Iterator[Array]:
        """Yield the elements of a tensor, row by row, `PIECE` at a time, the last ones only when all are verified.

        Two states that have the same tensor have pieces of the same sizes, however it lies in their files.

        Yields:
            (n,) in the dtype of the tensor; the next piece may be in the same place

        Raises:
            CheckpointError: it is damaged
        """

    @abstractmethod
    def verify_all(self, progress: Progress = no_progress) -> None:
        """Make the checks of a run, then verify the checksums of all tensors, in bounded memory.

        Raises:
            DamagedCheckpointError: naming the first thing that is damaged
            StoreError: the disk fails
        """


def summed_pieces(
    place: Place, first: int, last: int, read: Callable[[int, Array], object], tell: Callable[[int], object]
) -> Iterator[Array]:
    """Yield the elements of some rows, `PIECE` at a time; the next piece is in the same place.

    Args:
        place: of the tensor
        first, last: the range of rows
        read: read(offset, array) fills an array with the bytes at an offset of the file
        tell: told the checksum of all of them, before the last piece is yielded
    """
    offset, count, checksum = place.at(first), (last - first) * math.prod(place.shape[1:]), 0
    item_bytes = np.dtype(place.dtype).itemsize
    buffer = aligned_empty(min(PIECE, count) * item_bytes).view(place.dtype)
    for start in range(0, count, PIECE):
        piece = buffer[: count - start]
        read(offset + start * item_bytes, piece)
        checksum = crc32(piece.view(np.uint8).data, checksum)
        if start + PIECE >= count:
            tell(checksum)
        yield piece


def even_pieces(pieces: Iterable[Array]) -> Iterator[Array]:
    """Yield the elements of pieces of any size `PIECE` at a time; the last ones when there are no more to come."""
    buffer, filled = np.empty(0), 0
    for each in pieces:
        rest = each
        while rest.size:
            if not filled and rest.size >= PIECE:
                yield rest[:PIECE]
                rest = rest[PIECE:]
                continue
            if not filled:
                buffer = buffer if buffer.size and buffer.dtype == rest.dtype else np.empty(PIECE, rest.dtype)
            count = min(PIECE - filled, rest.size)
            buffer[filled : filled + count] = rest[:count]
            filled, rest = filled + count, rest[count:]
            if filled == PIECE:
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


class Meter:
    """Count the bytes of arrays that pass.

    Args:
        total_bytes: bytes to come
        progress: told of each piece
    """

    def __init__(self, total_bytes: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total_bytes, progress

    def through(self, pieces: Iterable[Array]) -> Iterator[Array]:
        """Yield pieces as they come."""
        for piece in pieces:
            self._done += piece.nbytes
            self._progress(self._done, self._total)
            yield piece
