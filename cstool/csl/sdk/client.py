"""A host script's side of the simulator: it starts the process, sends requests, and gets answers or an error.

Answers are read while a request waits for its own, and at no other time, so that results in a script never depend on
the speed of the simulator.
"""

import itertools
import signal
import socket
import subprocess
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.sdk import wire
from cstool.foundation.safe_python import python

_ROOT = Path(__file__).resolve().parents[3]
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from cstool.csl.sdk.simulator import main; main(sys.argv[1:])"
)


class SdkRuntimeError(SimulationError, RuntimeError):
    """A request of a host script is invalid, or the simulated program failed."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.report is None else f"{text}\n\n{self.report}"


class Task:
    """A request that may not be done yet.

    Args:
        number: number of the request
        text: its name in messages
        take: function that takes the words of the answer
    """

    def __init__(self, number: int, text: str, take: Callable[[wire.Words], None] | None) -> None:
        self.number = number
        self.done = False
        self._text = text
        self._take = take

    def __repr__(self) -> str:
        return f"<{self._text}: {'done' if self.done else 'not done'}>"

    def finish(self, words: wire.Words) -> None:
        """Take the answer."""
        self.done = True
        if self._take is not None:
            self._take(words)


class Simulator:
    """A process that simulates a compiled program.

    Args:
        folder: directory of the program

    Raises:
        SdkRuntimeError: from every method: the program is damaged or failed, or the process has ended
    """

    def __init__(self, folder: Path) -> None:
        self._numbers = itertools.count(1)
        self._tasks: dict[int, Task] = {}
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                python("-c", _START, str(_ROOT), str(theirs.fileno()), str(folder)),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._end = weakref.finalize(self, _close, self._connection, self._process)

    def ask(
        self,
        text: str,
        header: dict[str, Any],
        words: wire.Words = wire.NO_WORDS,
        *,
        block: bool = True,
        take: Callable[[wire.Words], None] | None = None,
    ) -> Task:
        """Send a request; wait for its answer if it blocks."""
        task = Task(next(self._numbers), text, take)
        self._tasks[task.number] = task
        try:
            wire.send(self._connection, {"id": task.number, "block": block, **header}, words)
        except OSError:
            raise self._ended() from None
        if block:
            self._until(task)
        return task

    def wait(self, task: Task) -> None:
        """Wait until a request is done."""
        if not task.done:
            self.ask(f"wait for {task!r}", {"op": "wait", "task": task.number})
        self._until(task)

    def poll(self, task: Task) -> bool:
        """Whether a request is done; asking takes the fabric as long as a command does."""
        if not task.done:
            self.ask("poll", {"op": "poll"})
        return task.done

    def close(self) -> None:
        """End the process."""
        self._end()

    def _until(self, task: Task) -> None:
        while not task.done:
            self._take_answer()

    def _take_answer(self) -> None:
        message = wire.receive(self._connection)
        if message is None:
            raise self._ended()
        header, words = message
        task = self._tasks.pop(header["id"])
        if (error := header.get("error")) is not None:
            raise SdkRuntimeError(error["message"], error["hint"], error["report"])
        task.finish(words)

    def _ended(self) -> SdkRuntimeError:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return SdkRuntimeError("the simulator closed its connection, and does not end")
        if code < 0:
            name = signal.Signals(-code).name if -code in {*signal.Signals} else str(-code)
            hint = "the system may have ended it for want of memory" if name == "SIGKILL" else None
            return SdkRuntimeError(f"the simulator was ended by {name} (process {self._process.pid})", hint)
        return SdkRuntimeError(f"the simulator ended with exit code {code} (process {self._process.pid})")


def _close(connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    connection.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
