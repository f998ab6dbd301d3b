"""The store protocol: the requests of MemoryX to the keeper of its arrays."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray


class Store(Protocol):
    """Arrays by name, borrowed by ranges of rows (axis 0).

    Breaking a rule is an error of the program, not of the user: KeyError where there is no such array, ValueError
    where rows are out of range, or as a method says. All methods may be called from several threads. Several may borrow
    the same rows at once; keeping a writer apart from the others is up to them.
    """

    outlives: bool
    """whether the arrays may outlive the process: then all that is needed to understand them must be in them"""
    in_place: bool
    """whether a loan is the array itself, which stays where it is until the store is closed"""

    def create(
        self, name: str, shape: Sequence[int], dtype: str = "float32", *, scratch: bool = False, fixed: bool = False
    ) -> None:
        """Create an array of at least one dimension, full of zeros; `scratch` is lost when the run is interrupted.

        One that is `fixed` is written before the first commit alone, and is kept once.

        Raises:
            ValueError: the name is taken, or the shape is not one of an array with rows
        """

    def names(self) -> list[str]:
        """Return the names of all arrays in the order of their creation."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an array."""

    def dtype(self, name: str) -> str:
        """Name of an array's dtype, such as "float32"."""

    def borrow(self, name: str, start: int, stop: int, *, fresh: bool = False) -> NDArray[Any]:
        """Return rows `start` to `stop`, C-contiguous, for the borrower to read and write until given back.

        With `fresh` the contents do not matter: all of them will be written.
        """

    def give_back(self, name: str, start: int, stop: int, array: NDArray[Any], *, changed: bool) -> None:
        """Give the very array that `borrow` returned back, or raise ValueError if it is not out on loan for these rows.

        Writes to it, if it is not `changed`, are lost or kept, as the store likes.
        """

    def read(self, name: str, start: int, out: NDArray[Any]) -> None:
        """Copy rows from `start` on into (rows, *shape[1:]), C-contiguous, in the dtype of the array."""

    def write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        """Copy (rows, *shape[1:]), C-contiguous, into an array from `start` on; they must not be on loan meanwhile."""

    def rewrite(
        self,
        names: Sequence[str],
        start: int,
        stop: int,
        change: Callable[[list[NDArray[Any]], int, int], None],
        reads: Sequence[str] = (),
    ) -> None:
        """Change the same rows of several arrays in place, in as many pieces as the store likes.

        Args:
            names: of the arrays that change; no other thread may write to these rows meanwhile, or read them
            start, stop: the range of rows
            change: change(arrays, first, last) gets rows `first` to `last` of each array, the arrays of `reads` last
            reads: arrays that are read beside them
        """

    def expect(
        self, order: Sequence[tuple[str, int, int]], apart: int, doubtful: Collection[str] = frozenset()
    ) -> None:
        """Announce the rows that will be borrowed from now on, over and over: a hint.

        Args:
            order: (name, start, stop) of rows, in the order in which they will be asked for
            apart: largest lead of the fastest borrower over the slowest [rows of `order`]
            doubtful: arrays of which only rows that `want` names before are asked for
        """

    def want(self, rows: Sequence[tuple[str, int, int]], times: int) -> None:
        """Announce that rows of doubtful arrays will be borrowed `times` times each, at their places in the order."""

    def close(self) -> None:
        """Let go of everything; nothing else may be called afterwards. Closing twice is fine."""


def check_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of an array about to be created as a tuple of Python integers, or raise ValueError."""
    checked = tuple(int(extent) for extent in shape)
    if not checked or min(checked) < 0:
        raise ValueError(f"{name}: a shape must have one or more dimensions, none negative, got {checked}")
    return checked


def check_like(name: str, shape: Sequence[int], dtype: str, rows: NDArray[Any]) -> None:
    """Check that an array is rows of another, contiguous and of its dtype, or raise ValueError."""
    if rows.shape[1:] != tuple(shape[1:]) or rows.dtype.name != dtype or not rows.flags.c_contiguous:
        raise ValueError(
            f"{name}: must be rows of {tuple(shape)} {dtype}, C-contiguous, got {rows.shape} {rows.dtype.name}"
        )


def check_rows(name: str, rows: int, start: int, stop: int) -> None:
    """Check a range of rows, or raise ValueError."""
    if not 0 <= start <= stop <= rows:
        raise ValueError(f"{name}: rows must satisfy 0 <= start <= stop <= {rows}, got {start}:{stop}")


def written(shape: Sequence[int], dtype: str) -> str:
    """Return a shape and a dtype as messages have them: 3 x 4 float32."""
    return f"{' x '.join(map(str, shape))} {dtype}"
