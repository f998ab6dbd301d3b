"""SIGINT, SIGTERM, SIGHUP and SIGUSR1: the step under way is finished, the run saved, and then it stops."""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

from cstool.foundation.launched import STOPS

log = logging.getLogger("cstool")


class StopRequest:
    """Within the context the signals only set `signal_name`; a second SIGINT acts as usual.

    Outside the main thread, where Python cannot set handlers, it does nothing. A signal that is ignored stays so: that
    is how a shell keeps Ctrl-C from its background processes, and `nohup` the end of a terminal, SIGHUP. Output
    to a terminal that was closed goes nowhere.

    Args:
        after: the work that is finished before it stops
        at_once: the effect of a second SIGINT
    """

    def __init__(
        self, after: str = "this step is done and saved", at_once: str = "stops at once and saves nothing"
    ) -> None:
        self._after, self._at_once = after, at_once
        self.signal_name: str | None = None
        self._came_here = False
        self._before: dict[signal.Signals, Any] = {}
        self._terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in STOPS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._set)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _set(self, number: int, _frame: FrameType | None) -> None:
        # A launcher sends it to all processes: a signal passed on by another one must not count as the second here.
        if self._came_here and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._came_here = True
        self.ask(signal.Signals(number).name)

    def ask(self, signal_name: str) -> None:
        """Ask for the stop, as a signal does that came here or elsewhere, or to several processes at once."""
        if self.signal_name == signal_name:
            return
        self.signal_name = signal_name
        self._leave_terminals()
        # The signal may have come while this very thread was writing a log line.
        with suppress(RuntimeError):
            log.warning(
                f"{self.signal_name}: stopping as soon as {self._after}. Another SIGINT (Ctrl-C) {self._at_once}."
            )

    def _leave_terminals(self) -> None:
        """Write no more to terminals that are gone, where each line would be an error, and one would end the run."""
        gone = [descriptor for descriptor in self._terminals if not os.isatty(descriptor)]
        if gone:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            for descriptor in gone:
                os.dup2(nowhere, descriptor)
                self._terminals.remove(descriptor)
            os.close(nowhere)
