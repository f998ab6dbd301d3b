"""What the checkpoint commands read: the saved state of a run, whatever kind of file it is in."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

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
    `optimizer.W.*`, have the same order.
    """

    path: Path
    """the file"""

    @property
    @abstractmethod
    def format_version(self) -> str:
        """Version of the format of the file."""

    @property
    @abstractmethod
    def is_bound(self) -> bool:
        """Whether a digest or a commit record says that its parts belong together."""

    @property
    @abstractmethod
    def cstool_version(self) -> str:
        """Version of cstool that wrote it."""

    @abstractmethod
    def keys(self) -> list[str]:
        """Return all keys, of tensors, links and values, in the order of writing."""

    @abstractmethod
    def tensor_names(self) -> list[str]:
        """Return the keys of all tensors that are stored (links aside), in the order of writing."""

    @abstractmethod
    def link_of(self, key: str) -> str | None:
        """Return the tensor that a key is a link to, or None."""

    @abstractmethod
    def values(self, prefix: str = "") -> dict[str, Any]:
        """Return the values whose key is `prefix` or begins with it and a dot, as JSON has them; all for no prefix."""

    @abstractmethod
    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of a tensor or of what a link points to.

        Raises:
            CheckpointError: there is no such tensor
        """

    @abstractmethod
    def dtype(self, key: str) -> str:
        """Return the name of a tensor's dtype, such as "float32".

        Raises:
            CheckpointError: there is no such tensor
        """

    @abstractmethod
    def nbytes(self, key: str) -> int:
        """Return the size of a tensor [bytes].

        Raises:
            CheckpointError: there is no such tensor
        """

    @abstractmethod
    def pieces(self, key: str) -> Iterator[NDArray[Any]]:
        """Yield the elements of a tensor, row by row, `PIECE` at a time, the last ones only when all are verified.

        Yields:
            (n,) in the dtype of the tensor; the next piece may be in the same place

        Raises:
            CheckpointError: there is no such tensor, or it is damaged
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
