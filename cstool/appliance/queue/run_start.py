"""A run becomes a process: the child of its keeper, from fork to exec. Part of the keeper: it imports little."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

STOPS = {signal.SIGTERM, signal.SIGHUP, signal.SIGINT}
"""signals that ask a keeper, or a run, to stop"""
_NICE = 10
"""niceness of compiles, which run beside executing jobs"""
_REFUSED = 2
"""exit code of cstool for errors that the user can fix"""
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
_libc = ctypes.CDLL(None)


class Order(NamedTuple):
    """The order that a keeper gets from its starter, as JSON.

    Args:
        command: words
        cwd: folder to start it in; where it is gone, the folder of the job
        environment: all variables of the run
        cpus: numbers of the cores that it is pinned to
        memory_bytes: of all its processes together; None for no budget [bytes]
        disk_bytes: largest growth of `model_dir` since the first attempt began; None for no budget [bytes]
        limit_s: time after which it is asked to stop; None for no limit [s]
        model_dir: "" where the disk is not watched
        log_limit_bytes: of each of out and err, before its text moves to out.1 or err.1 [bytes]
        user: user, group and other groups that it becomes; None where it stays the same user
        group: folder of the control group that guards its memory; "" where the keeper does
        grace_s: time for a run that was asked to stop for its disk or its time, before it is killed [s]
        record_s: time for which it tries to record the end on a full disk [s]
        tick_s: so often it looks at the run [s]
    """

    command: list[str]
    cwd: str
    environment: dict[str, str]
    cpus: list[int]
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    limit_s: float | None = None
    model_dir: str = ""
    log_limit_bytes: int = 2**24
    user: tuple[int, int, Sequence[int]] | None = None
    group: str = ""
    grace_s: float = 120.0
    record_s: float = 120.0
    tick_s: float = 0.1


def become_subreaper() -> None:
    """Make this process the new parent of its descendants that lose theirs; see prctl(2)."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_run(order: Order, stage: str, folder: int, lock: int, logs: Sequence[int]) -> int:
    """Start the run of an attempt; an error that stops it is the last line of its log, with exit code 2.

    It has a session of its own, no input, and is told with SIGTERM when its keeper is gone.

    Args:
        stage: a compile gets a lower priority than executing jobs
        folder: of the job
        lock: of the job, which it holds, too
        logs: its output and its errors

    Returns:
        The number of the process

    Raises:
        OSError: the system lets this process start no other
    """
    keeper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        for number, log in enumerate(logs, start=1):
            os.dup2(log, number)
        os.set_inheritable(lock, True)
        _become_run(order, stage, folder, keeper)
    except BaseException as error:  # nothing of the keeper may go on in this process
        say(2, f"error: {error}")
    finally:
        os._exit(_REFUSED)


def say(descriptor: int, text: str) -> None:
    """Write a line, if the other end is open."""
    with suppress(OSError):
        os.write(descriptor, f"{text}\n".encode(errors="backslashreplace"))


def _become_run(order: Order, stage: str, folder: int, keeper: int) -> NoReturn:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if order.cpus:
        try:
            os.sched_setaffinity(0, order.cpus)
        except (OSError, ValueError) as error:
            raise ValueError(f"cores {order.cpus}: must be there for this job, got: {_reason(error)}") from error
    if stage == "compile":
        os.nice(_NICE)
    try:
        os.chdir(order.cwd)
    except OSError:  # what it reads has absolute paths
        os.fchdir(folder)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
        signal.signal(ignored, signal.SIG_DFL)
    for number in STOPS:  # by whoever started the keeper
        signal.signal(number, signal.SIG_DFL)
    _libc.prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != keeper:  # it was gone before
        os._exit(_REFUSED)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    program = order.command[0]
    try:
        os.execvpe(program, order.command, order.environment)
    except (OSError, ValueError) as error:
        raise ValueError(f"{program}: must be a program that can be started, got: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
