"""What the ranks of a run say to each other: small bodies, and arrays that go with them."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

Array = np.ndarray[Any, Any]


class Form(NamedTuple):
    """What an array is like before it is there."""

    shape: tuple[int, ...]
    dtype: str

    def empty(self) -> Array:
        """Memory for such an array."""
        return np.empty(self.shape, self.dtype)


Place: TypeAlias = Callable[[Any, Sequence[Form]], Sequence[Array]]
"""place(body, forms) gives the arrays that those of a message are written to"""
Hear: TypeAlias = Callable[[int, Any, Sequence[Array]], None]
"""hear(sender, body, arrays) takes a message"""


def place_anew(_: Any, forms: Sequence[Form]) -> Sequence[Array]:
    """Memory of its own for each array."""
    return [form.empty() for form in forms]


class Link(Protocol):
    """A rank's end of the line. Messages from one rank to another arrive in the order in which they were sent."""

    @property
    def rank(self) -> int:
        """Of this process, from 0."""
        ...

    @property
    def ranks(self) -> int:
        """How many there are."""
        ...

    @property
    def host_ranks(self) -> int:
        """How many of them are on this host."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Size of the arrays that were sent so far [bytes]."""
        ...

    def send(self, to: int, kind: str, body: Any = None, arrays: Sequence[Array] = ()) -> Future[None]:
        """Send a message.

        Args:
            body: small, and of plain data
            arrays: C-contiguous; nobody may change them until the future is done

        Raises:
            ClusterError: the link is broken
        """
        ...

    def listen(self, kind: str, hear: Hear, place: Place = place_anew) -> None:
        """Have the messages of a kind heard as they come; those that came before have lost their arrays.

        Both functions are called by the thread of the link, and must soon return.
        """
        ...

    def on_failure(self, tell: Callable[[BaseException], None]) -> None:
        """Have somebody told when the link breaks, so that whoever waits for what it brings waits no longer."""
        ...

    def receive(self, sender: int, kind: str) -> Any:
        """Wait for the next message of a kind that nobody listens to, and give its body.

        Raises:
            ClusterError: the link is broken
        """
        ...

    def fail(self, error: BaseException) -> None:
        """Break the link: whoever waits at this end of it hears of the error."""
        ...

    def close(self) -> None:
        """Let go, once all that was sent has left."""
        ...


class Alone:
    """The link of the only rank: nobody is at its other end."""

    rank, ranks, host_ranks, sent_bytes = 0, 1, 1, 0

    def send(self, to: int, kind: str, *_: Any) -> Future[None]:
        """Not to be called."""
        raise AssertionError(f"{kind}: there is no rank {to}")

    def listen(self, kind: str, hear: Hear, place: Place = place_anew) -> None:
        """Nothing will ever come."""

    def on_failure(self, tell: Callable[[BaseException], None]) -> None:
        """Nothing can break."""

    def receive(self, sender: int, kind: str) -> Any:
        """Not to be called."""
        raise AssertionError(f"{kind}: there is no rank {sender}")

    def fail(self, error: BaseException) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """There is nothing to let go of."""


ALONE = Alone()
"""a run in one process"""
