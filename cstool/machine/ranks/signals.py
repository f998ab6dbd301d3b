"""Signals of a process that is no rank itself, and passes them on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collect the signals that would end this process, in place of ending; one that is ignored stays so."""
    came: list[int] = []

    def take(number: int, _: FrameType | None) -> None:
        came.append(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, take)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
