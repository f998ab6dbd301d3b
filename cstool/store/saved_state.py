"""What the checkpoint commands read: the saved state of a run, whatever kind of file it is in."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from cstool.errors import CheckpointError
from cstool.words import nearest

Progress = Callable[[int, int], object]
"""told how far something is: done, in all [bytes]"""

PIECE = 2**20
"""elements of a tensor that are in memory at once"""


def no_progress(done: int, total: int) -> None:
    """Tell nobody."""


class Opened(ABC):
    """Something that is open until it is closed; a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of the files. Closing twice is fine."""


class SavedState(Opened):
    """Tensors and values by key, open for reading; a context manager.

    Of a sparse weight `model.W`, its non-zeros are the tensor of that key, where they belong in the weight laid out
    row by row is `model.W.indices`, and the value `sparsity` has its shape. Its arrays of optimizer state,
    `optimizer.W.*`, have the same order. What is asked of a tensor that is not there raises CheckpointError.
    """

    path: Path
    """the file"""
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

    @abstractmethod
    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of a tensor or of what a link points to."""

    @abstractmethod
    def dtype(self, key: str) -> str:
        """Name of a tensor's dtype, such as "float32"."""

    @abstractmethod
    def nbytes(self, key: str) -> int:
        """Size of a tensor [bytes]."""

    @abstractmethod
    def pieces(self, key: str) -> Iterator[NDArray[Any]]:
        """Yield the elements of a tensor, row by row, `PIECE` at a time, the last ones only when all are verified.

        Yields:
            (n,) in the dtype of the tensor; the next piece may be in the same place

        Raises:
            CheckpointError: it is damaged
        """

    @abstractmethod
    def verify_all(self, progress: Progress = no_progress) -> None:
        """Verify what a run would refuse, then the checksums of all tensors, in bounded memory.

        Raises:
            DamagedCheckpointError: naming the first thing that is damaged
            StoreError: the disk fails
        """


class Meter:
    """Count the bytes of what passes.

    Args:
        total_bytes: how many there will be
        progress: told of each piece
    """

    def __init__(self, total_bytes: int, progress: Progress) -> None:
        self._done, self._total, self._progress = 0, total_bytes, progress

    def through(self, pieces: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """Yield pieces as they come."""
        for piece in pieces:
            self._done += piece.nbytes
            self._progress(self._done, self._total)
            yield piece
