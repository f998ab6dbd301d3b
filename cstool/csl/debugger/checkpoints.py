"""Copies of the debugger that stand still at moments of a repetition, so that a way back need not begin anew.

A simulation in progress cannot be copied by Python: a task that waits is a generator. So the process is forked, and the
copy waits. On the way back it forks once more, and its copy goes on from that moment, while it stays for the next time.

The first process is the one with the terminal. It repeats the run itself until the first way back. From then on it has
the terminal alone: it shows lines and asks for commands, and one copy at a time does these commands. Copies are bound
to it by sockets, which close when it ends, even if it is killed; then they end, too.
"""

import contextlib
import os
import signal
import socket
import tempfile
import traceback
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cstool.foundation.errors import CstoolError

MOST = 12
"""checkpoints at most"""
APART = 4096
"""moments between two checkpoints at least"""


class Terminal(Protocol):
    """What the first process does for the others."""

    def show(self, line: str) -> None:
        """Show a line of output."""

    def line(self, chosen: int) -> str | None:
        """The next line of commands; None: there are no more. `chosen`: index of the PE that they are about."""

    def failed(self) -> None:
        """Count an invalid command."""


class Over(BaseException):
    """The session has ended in a copy."""


class _Kept(NamedTuple):
    """A copy that stands still: the way to it, and its process if that is a child of the first one."""

    connection: Connection
    child: int | None


def to_drop(moments: list[int], here: int) -> int:
    """The checkpoint to drop: one behind this moment, else the one that leaves the smallest gap for its distance.

    So checkpoints are dense just before this moment, and half as dense at twice the distance. One behind it is made
    again on the way there.

    Args:
        moments: of the checkpoints, in order
        here: this moment, which is one of them; it is not dropped
    """
    if moments[-1] > here:
        return moments[-1]
    around = zip([0, *moments], moments[:-1], moments[1:], strict=False)
    return min(around, key=lambda three: (three[2] - three[0]) / (here - three[0]))[1]


class Checkpoints:
    """The copies of a session.

    Args:
        terminal: does what is asked of the first process
        apart: moments between two checkpoints at least; 0: there are none
    """

    def __init__(self, terminal: Terminal, apart: int = APART) -> None:
        self._terminal = terminal
        self._apart = apart
        self._folder = tempfile.TemporaryDirectory(prefix="cstool-debug-")
        self._address = str(Path(self._folder.name, "first"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._address)
        self._listener.listen()
        self._kept: dict[int, _Kept] = {}  # in the first process: by moment
        self._moments: list[int] = []  # of all checkpoints, in order
        self._first: Connection | None = None  # in a copy: the way to the first process

    # --- in the process that repeats the run ---

    def ask(self, what: str, *arguments: Any) -> Any:
        """Let the first process do something of `Terminal`; return its answer."""
        if self._first is None:
            return getattr(self._terminal, what)(*arguments)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the prompt is for the first process
        try:
            self._first.send((what, arguments))
            return self._first.recv()
        finally:
            signal.signal(signal.SIGINT, before)

    def come_to(self, moment: int) -> Any:
        """Make a checkpoint at a moment if none is near before it.

        Returns:
            None; in a copy that goes on from here later, the state that `resume` was called with
        """
        if not self._apart or any(0 <= moment - each < self._apart for each in self._moments) or moment < self._apart:
            return None
        try:
            child = os.fork()
        except OSError:  # no room for one more process: ways back are slower
            return None
        if not child:
            return self._stand_still()
        if self._first is None:
            self._moments = self._add(moment, child)
        else:
            self._moments = self.ask("add", moment)
        return None

    def _stand_still(self) -> Any:
        """Wait in a copy; return the state in a copy of the copy, each time that the first process asks for one."""
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies of this one
        try:
            self._forget()
            asked = Client(self._address, "AF_UNIX")
            while True:
                asked.recv()
                if not os.fork():
                    break
            asked.close()
            self._first = Client(self._address, "AF_UNIX")
            self._moments, state = self._first.recv()
        except BaseException:  # the first process has gone, or has dropped this checkpoint
            os._exit(0)
        signal.signal(signal.SIGINT, interrupt)
        return state

    def resume(self, moment: int, state: Any) -> Any:
        """Go on from the last checkpoint up to a moment, in a copy with this state. A copy that calls it ends.

        Returns:
            in the first process: a state to begin anew with, because there is no such checkpoint
        Raises:
            Over: the session has ended in a copy
        """
        if self._first is not None:
            self._leave("resume", moment, state)
        while moments := [each for each in self._moments if each <= moment]:
            kept = self._kept[moments[-1]]
            try:
                kept.connection.send(None)
            except OSError:  # it has been killed
                self._drop(moments[-1])
                continue
            moment, state = self._serve(self._accept(), state)
        return state

    def leave(self, error: BaseException | None = None) -> None:
        """End the session. A copy ends here; in the first process, all checkpoints end."""
        if self._first is not None:
            if error is not None:
                error.add_note(f"in a copy of the debugger:\n{''.join(traceback.format_exception(error))}")
            self._leave("over", error)
        for moment in list(self._kept):
            self._drop(moment)
        self._listener.close()
        self._folder.cleanup()

    def _leave(self, what: str, *arguments: Any) -> None:
        assert self._first is not None
        with contextlib.suppress(OSError):  # the first process has gone
            self._first.send((what, arguments))
        os._exit(0)

    def _forget(self) -> None:
        """Close what belongs to the process that this is a copy of."""
        for kept in self._kept.values():
            kept.connection.close()
        self._kept = {}
        if self._first is not None:
            self._first.close()
        self._listener.close()

    # --- in the first process ---

    def _serve(self, copy: Connection, state: Any) -> tuple[int, Any]:
        """Do what a copy asks for, until it wants to go back; return the moment and its state."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with copy:
                copy.send((self._moments, state))
                while True:
                    try:
                        what, arguments = copy.recv()
                    except EOFError:
                        raise CstoolError(
                            "the debugger: a copy of it must stay until it is done, it has been killed",
                            "each of its checkpoints takes memory; was there enough?",
                        ) from None
                    if what == "resume":
                        return int(arguments[0]), arguments[1]
                    if what == "over":
                        raise arguments[0] or Over
                    if what == "add":
                        self._moments = self._add(arguments[0], None)
                        copy.send(self._moments)
                    else:
                        copy.send(getattr(self._terminal, what)(*arguments))
        finally:
            signal.signal(signal.SIGINT, before)

    def _accept(self) -> Connection:
        return Connection(self._listener.accept()[0].detach())

    def _add(self, moment: int, child: int | None) -> list[int]:
        self._kept[moment] = _Kept(self._accept(), child)
        moments = sorted(self._kept)
        if len(moments) > MOST:
            self._drop(to_drop(moments, moment))
        return sorted(self._kept)

    def _drop(self, moment: int) -> None:
        kept = self._kept.pop(moment)
        self._moments = sorted(self._kept)
        kept.connection.close()
        if kept.child is not None:
            os.waitpid(kept.child, 0)
