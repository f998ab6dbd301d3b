"""The messages between the ranks of a run. A message has a kind, which is a word, a small body, and arrays."""

# ruff: noqa: ARG002 - a run in one process has no use for the arguments

import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]


class Form(NamedTuple):
    """Shape and type of an array that is still to come."""

    shape: tuple[int, ...]
    dtype: str

    def empty(self) -> Array:
        """Memory for such an array, with arbitrary contents."""
        return np.empty(self.shape, self.dtype)


Place: TypeAlias = Callable[[Any, Sequence[Form]], Sequence[Array]]
"""place(body, forms) gives the arrays into which the arrays of a message are received"""
Hear: TypeAlias = Callable[[int, Any, Sequence[Array]], None]
"""hear(sender, body, arrays) takes a message"""


def place_anew(_: Any, forms: Sequence[Form]) -> Sequence[Array]:
    """New memory for each array."""
    return [form.empty() for form in forms]


class Activity:
    """The activity of the ranks, as far as this one knows: for the message of one that is lost."""

    def __init__(self) -> None:
        self.step: int | None = None
        """the step under way"""
        self.passed: dict[int, str] = {}
        """the weight that a rank was through with last"""

    def of(self, rank: int) -> str:
        """Return the progress of a rank, in words."""
        if self.step is None:
            return "before the first step"
        weight = self.passed.get(rank)
        return f"in step {self.step}" if weight is None else f"in step {self.step}, after the op of {weight}"


class Link:
    """One rank's end of the link. Messages of a rank to another arrive in the order in which they were sent.

    As it stands it is the link of a run in one process: no message ever comes, and no link can break.
    """

    activity = Activity()
    """the present activity"""
    hosts: dict[int, str] = {0: socket.gethostname()}
    """their names, by rank, as far as they are known: at rank 0 all"""
    rank = 0
    """of this process, from 0"""
    ranks = 1
    """number of ranks"""
    host_ranks = 1
    """number of ranks on this host"""
    sent_bytes = 0
    """size of the arrays that were sent so far [bytes]"""

    def send(self, to: int, kind: str, body: Any = None, arrays: Sequence[Array] = ()) -> Future[None]:
        """Send a message.

        Args:
            to: a rank
            kind: word by which the other rank receives it, or listens
            body: small, and of plain data
            arrays: C-contiguous; unchanged until the future is done

        Returns:
            done once the message has left this rank

        Raises:
            ClusterError: the link is broken
        """
        raise AssertionError(f"{kind}: there is no rank {to}")

    def listen(self, kind: str, hear: Hear, place: Place = place_anew) -> None:
        """Have the messages of a kind heard as they come, from any rank.

        Earlier messages are heard at once, without their arrays. Both functions are called by the thread of the
        link: they must not wait for anything.
        """

    def on_failure(self, tell: Callable[[BaseException], None]) -> None:
        """Have a function called with the error when the link breaks, to wake threads that wait for such messages."""

    def receive(self, sender: int, kind: str) -> Any:
        """Wait for the next message of a kind from a rank, one without a listener, and give its body.

        Raises:
            ClusterError: the link is broken
        """
        raise AssertionError(f"{kind}: there is no rank {sender}")

    def fail(self, error: BaseException) -> None:
        """Break the link at this rank: threads that wait here for a message get the error."""

    def lose(self, rank: int, error: BaseException) -> None:
        """Count a rank as gone for good, which breaks the link, unless that rank, or this one, was through with it."""
        raise AssertionError(f"there is no rank {rank}") from error

    @property
    def lost(self) -> Collection[int]:
        """The ranks that are gone for good."""
        return frozenset()

    @property
    def leads_host(self) -> bool:
        """Whether this rank is the first one of its host."""
        return True

    def end_all(self, exit_code: int) -> None:
        """Have the launcher end all that it started, at once, when this process comes to its end."""

    def close(self) -> None:
        """Leave the link, once all that was sent has left."""


ALONE = Link()
"""a run in one process"""
