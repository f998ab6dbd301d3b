"""Signals: of a process that is no rank itself, and passes them on; and the abort of one that is."""

import ctypes
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cstool.foundation.launched import STOPS


def delay_aborts() -> None:
    """Have a thread that calls abort() sleep for some seconds first, in which other threads may report the cause.

    MPI may abort where a rank dies whose memory it was just reading; that rank's connection has told of it by then.
    libc itself sleeps, and takes the number of the signal for seconds: nothing of Python runs there.
    """
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal(int(signal.SIGABRT), ctypes.cast(libc.sleep, ctypes.c_void_p))


@contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collect the signals that would end this process, in place of ending; one that is ignored stays so."""
    came: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        came.append(number)

    before = {}
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, take)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
