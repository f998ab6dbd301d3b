"""The time stamp counter of one PE, which its program stops, lets go on, and sets to 0."""

from collections.abc import Callable

_BITS = (1 << 48) - 1
STOP, GO_ON, RESET = range(3)


class Counter:
    """The counter: 48 bits. It stands still at 0 before the program lets it go on.

    Args:
        clock: the cycle that the program has come to
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._begin = 0  # the cycle at which it was 0, while it counts
        self._stopped: int | None = 0  # what it shows while it stands still

    def shows(self) -> int:
        """Its cycles."""
        return (self._clock() - self._begin if self._stopped is None else self._stopped) & _BITS

    def set(self, act: int) -> None:
        """`STOP`, `GO_ON` or `RESET` it; a stop or a start twice over changes nothing."""
        if act == RESET:
            self._begin = self._clock()
            if self._stopped is not None:
                self._stopped = 0
        elif act == GO_ON and self._stopped is not None:
            self._begin, self._stopped = self._clock() - self._stopped, None
        elif act == STOP and self._stopped is None:
            self._stopped = self.shows()
