"""The store protocol: what MemoryX asks of whoever keeps its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray


class Store(Protocol):
    """Arrays by name, borrowed by ranges of rows (axis 0).

    Breaking a rule is an error of the program, not of the user, so it raises ValueError or KeyError. All
    methods may be called from several threads. Several may borrow the same rows at once; keeping a writer
    apart from the others is up to them.
    """

    def create(self, name: str, shape: Sequence[int], dtype: str = "float32") -> None:
        """Create an array of at least one dimension, full of zeros.

        Raises:
            ValueError: the name is taken, or the shape is not one of an array with rows
        """
        ...

    def names(self) -> list[str]:
        """Return the names of all arrays in the order of their creation."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array.

        Raises:
            KeyError: there is no such array
        """
        ...

    def dtype(self, name: str) -> str:
        """Return the name of an array's dtype, such as "float32".

        Raises:
            KeyError: there is no such array
        """
        ...

    def borrow(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start` to `stop`, C-contiguous, for the borrower to read and write until given back.

        Returns:
            (stop - start, *shape[1:]) in the dtype of the array

        Raises:
            KeyError: there is no such array
            ValueError: the rows are out of range
        """
        ...

    def give_back(self, name: str, start: int, stop: int, array: NDArray[Any], *, changed: bool) -> None:
        """Give borrowed rows back.

        Args:
            name, start, stop: as they were borrowed
            array: the very array that `borrow` returned
            changed: whether it was written to; what was written is otherwise lost or kept, as the store likes

        Raises:
            KeyError: there is no such array
            ValueError: this array is not out on loan for these rows
        """
        ...

    def close(self) -> None:
        """Let go of everything; nothing else may be called afterwards. Closing twice is fine."""
        ...


def check_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an array about to be created as a tuple of Python integers.

    Raises:
        ValueError: it has no dimension, or a negative one
    """
    checked = tuple(int(extent) for extent in shape)
    if not checked or min(checked) < 0:
        raise ValueError(f"{name}: a shape must have one or more dimensions, none negative, got {checked}")
    return checked


def check_rows(name: str, rows: int, start: int, stop: int) -> None:
    """Check a range of rows.

    Raises:
        ValueError: the range does not lie in the array
    """
    if not 0 <= start <= stop <= rows:
        raise ValueError(f"{name}: rows must satisfy 0 <= start <= stop <= {rows}, got {start}:{stop}")
