"""Sides of a comparison as processes that take turns: the one that waits is idle, and the memory of each is its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SHORTEST_TURN_S = 0.2
"""calls that are shorter are made several times over"""
WARM_UP_CALLS = 2
"""before the first turn: they compile, allocate and touch memory; the last of them says how many calls make a turn"""
LONGEST_WARM_UP_S = 300.0
LONGEST_CALL_S = 30.0
"""of a side that is worth its turns: a CPU without an instruction may take a hundred times as long without it"""


class TooSlow(Exception):
    """A side that this machine cannot run in earnest. It says how long it took."""


def status_bytes(key: str) -> int:
    """Return a line of /proc/self/status, such as VmRSS or VmHWM [bytes]."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def serve(build: Callable[[], Callable[[], object]]) -> None:
    """Be a side: answer "turn" on standard input with the seconds of a call, "peak" with the peak of memory [bytes].

    Before that it says how many seconds its last call before the first turn took.

    Args:
        build: makes the function that is called
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    call = build()
    for _ in range(WARM_UP_CALLS):
        began = time.perf_counter()
        call()
        seconds = time.perf_counter() - began
    calls = max(1, round(SHORTEST_TURN_S / seconds))
    print(seconds, file=out, flush=True)
    for line in sys.stdin:
        if line.strip() == "peak":
            print(status_bytes("VmHWM"), file=out, flush=True)
            continue
        began = time.perf_counter()
        for _ in range(calls):
            call()
        print((time.perf_counter() - began) / calls, file=out, flush=True)


class Side:
    """A side in a process of its own.

    Args:
        command: runs a Python process that calls `serve`
        folder: where
        environment: added to that of this process

    Raises:
        SystemExit: it does not start
        TooSlow: it takes longer than `LONGEST_WARM_UP_S`, or a call of it than `LONGEST_CALL_S`; it has ended
    """

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._name = f"{folder}: {' '.join(command[1:])}"
        pipes = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=folder, env=os.environ | environment, text=True, stdin=pipes, stdout=pipes
        )
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], LONGEST_WARM_UP_S)[0]:
            self.end()
            raise TooSlow(f"not ready after {LONGEST_WARM_UP_S:.0f} s")
        seconds = float(self._line())
        if seconds > LONGEST_CALL_S:
            self.end()
            raise TooSlow(f"a call took {seconds:.0f} s")

    def turn(self) -> float:
        """Let it take a turn; return the seconds of a call."""
        return float(self._ask("turn"))

    def peak_bytes(self) -> int:
        """The most memory that was resident so far [bytes]."""
        return int(self._ask("peak"))

    def end(self) -> None:
        """End the process."""
        with self._process:  # its pipes are closed, too
            self._process.kill()

    def _ask(self, what: str) -> str:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} ended with exit code {self._process.wait()}")
        return line.strip()
