"""Follows a job: shows its log as it grows, passes on signals of this process, and gives its exit code at the end."""

from __future__ import annotations

import codecs
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cstool.foundation.errors import Interrupted, RankLostError
from cstool.foundation.launched import WAY_ON
from cstool.foundation.slurm.batch_script import BatchJob
from cstool.foundation.slurm.commands import JobState, ask_to_stop, cancel, state_of

LOG_S, STATE_S = 0.2, 2.0
"""intervals between reads of the log, and between questions to Slurm [s]"""
AT_MOST = 2
"""signals that are passed on to a job; one more ends this process alone"""
_WAITS, _RUNS = ("PENDING", "CONFIGURING"), ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING")
_ENDED = ("COMPLETED", "FAILED")
"""states of jobs that ended by themselves; Slurm has other names for jobs that it ended"""


class LogFile:
    """A file that grows; when it is cut short, its old text is read on in a file of its name and `.1`.

    Args:
        show: takes new text
    """

    def __init__(self, path: Path, show: Callable[[str], object]) -> None:
        self._path, self._show = path, show
        self._read_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show_more(self) -> None:
        """Show the text added since the last call."""
        found = b""
        # Opened anew: of a file that is open NFS may not say for long that it has grown.
        with suppress(OSError), open(self._path, "rb") as file:
            if os.fstat(file.fileno()).st_size < self._read_bytes:
                found, self._read_bytes = self._moved(), 0
            file.seek(self._read_bytes)
            more = file.read()
            self._read_bytes += len(more)
            found += more
        if text := self._decoder.decode(found):
            self._show(text)

    def _moved(self) -> bytes:
        """The unread rest of a file that was cut short."""
        with suppress(OSError), open(f"{self._path}.1", "rb") as file:
            file.seek(self._read_bytes)
            return file.read()
        return b""


def follow(
    job: BatchJob,
    number: str,
    signals: list[int],
    show: Mapping[str, Callable[[str], object]],
    say: Callable[[str], object],
) -> int:
    """Follow a job until it has ended.

    Ctrl-C and SIGTERM have the run finish its step and save; a second Ctrl-C cancels the job. SIGHUP, the end of a
    terminal, lets the job go on, as batch jobs are meant to.

    Args:
        number: its number in Slurm
        signals: signals to this process, appended as they come
        show: functions that take the text of its "out" and of its "err"
        say: takes lines about the job itself

    Returns:
        Its exit code

    Raises:
        Interrupted: it was cancelled, or this process is no longer to follow it
        RankLostError: Slurm ended it
        ClusterError: Slurm does not know it
    """
    files = [LogFile(job.log(number, stream), show[stream]) for stream in ("out", "err")]
    stops = _Stops(number, job, signals, say)
    told, asked_s = "", -STATE_S
    state: JobState | None = None
    while True:
        for file in files:
            file.show_more()
        stops.pass_on()
        if time.monotonic() - asked_s < STATE_S:
            time.sleep(LOG_S)
            continue
        state, asked_s = state_of(number) or state, time.monotonic()
        if state is None:
            continue
        if state.name not in (*_WAITS, *_RUNS):
            break
        line = _in_words(state)
        if line not in ("", told):
            say(f"job {number}: {line}")
            told = line
        stops.has_run |= state.name == "RUNNING"
    for file in files:
        file.show_more()
    return _exit_code(number, state, stops)


class _Stops:
    """Signals to this process, passed on to the job."""

    def __init__(self, number: str, job: BatchJob, signals: list[int], say: Callable[[str], object]) -> None:
        self._number, self._job, self._signals, self._say = number, job, signals, say
        self._passed_on = 0
        self.has_run = False
        """whether the job was ever seen running"""

    @property
    def first(self) -> str:
        """The name of the first signal; empty if none came."""
        return signal.Signals(self._signals[0]).name if self._signals else ""

    def pass_on(self) -> None:
        """Pass new signals on.

        Raises:
            Interrupted: the job is to go on without this process, or Slurm does not answer it
        """
        while self._passed_on < len(self._signals):
            number = self._signals[self._passed_on]
            self._passed_on += 1
            if number == signal.SIGHUP or self._passed_on > AT_MOST:
                name, log = signal.Signals(number).name, self._job.log(self._number, "out")
                raise Interrupted(
                    f"{name}: job {self._number} is no longer followed, its log is {log}",
                    f"`scancel {self._number}` ends it",
                )
            if self._passed_on == 1:
                self._say(f"job {self._number}: stops after this step. Another Ctrl-C cancels it.")
                ask_to_stop(self._number, number)
            elif number == signal.SIGINT:
                self._say(f"job {self._number}: is cancelled")
                cancel(self._number)


def _in_words(state: JobState) -> str:
    if state.name in _WAITS:
        return "waits" if state.reason in ("", "None") else f"waits ({state.reason})"
    return f"runs on {state.nodes}" if state.name == "RUNNING" else ""


def _exit_code(number: str, state: JobState, stops: _Stops) -> int:
    """The exit code of a job that has ended; see `follow`."""
    if state.name in _ENDED and not state.signal:
        return state.exit_code
    if stops.first and not stops.has_run:
        raise Interrupted(f"stopped by {stops.first} before the run began")
    if stops.first:
        raise Interrupted(f"stopped by {stops.first}: job {number} was cancelled", WAY_ON)
    if state.name == "CANCELLED":
        raise Interrupted(f"job {number} was cancelled", WAY_ON)
    how = f"signal {state.signal} of its script" if state.name in _ENDED else state.name
    hint = (
        f"{WAY_ON}; a longer --time, or a larger one of `--signal` in the script, helps" if how == "TIMEOUT" else WAY_ON
    )
    raise RankLostError(f"job {number}: must end by itself, it was ended by {how}", hint)
