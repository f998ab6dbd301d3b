"""An appliance as a whole: start it, stop it, show its status, let it drain."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import cstool
from cstool.appliance.queue.backend import LOCAL, make_backend
from cstool.appliance.queue.guard import GUARD_LOCK
from cstool.appliance.queue.holders import Holder, holder_of
from cstool.appliance.queue.job import CANCEL, COMPILING, DRAINED, RUNNING, SUPERVISOR_STARTED, UNDRAINED, Capacity, Job
from cstool.appliance.queue.queue import BACKEND, CAPACITY, DRAINED_SETTING, Queue
from cstool.appliance.queue.root import Root
from cstool.appliance.queue.supervising import runs_already, supervise
from cstool.appliance.queue.supervisor_log import SupervisorLog
from cstool.foundation.errors import CstoolError
from cstool.foundation.safe_python import python

START_S, STOP_S = 60.0, 60.0
"""longest time for a supervisor to begin, and to end [s]"""
LOOK_S = 0.05
"""interval of looking at it meanwhile [s]"""


@dataclass(frozen=True)
class ApplianceStatus:
    """How an appliance is.

    Args:
        supervisor: "process N on HOST since DATE TIME" of the supervisor; None where none runs
        supervisor_pid: None where none runs on this host
        drained: whether nothing new is started
        capacity: of the appliance; None where it was never started
        used: the share that running jobs have of it; its cpus are the cores that are taken
        phases: phase -> number of jobs in it
        backend: default back end of new jobs
    """

    supervisor: str | None
    supervisor_pid: int | None
    drained: bool
    capacity: Capacity | None
    used: Capacity
    phases: dict[str, int]
    backend: str


def start_appliance(root: Root, capacity: Capacity, *, foreground: bool = False) -> int:
    """Start the supervisor of an appliance, and return once it supervises; in the foreground once it has ended.

    Returns:
        The process id of the guard that starts it again; in the foreground, of the supervisor, this process

    Raises:
        CstoolError: one runs already, or it cannot start
    """
    if (holder := _holder(root)) is not None:
        raise runs_already(root, holder.text)
    with Queue(root) as queue:
        queue.put(CAPACITY, asdict(capacity))
        if queue.get(BACKEND) is None:
            queue.put(BACKEND, LOCAL)
    if foreground:
        supervise(root)
        return os.getpid()
    with Queue(root) as queue:
        before = max((event.number for event in queue.events("", limit=1)), default=0)
        guard = _start_guard(root)
        deadline = time.monotonic() + START_S
        while not any(event.kind == SUPERVISOR_STARTED for event in queue.events("", after=before)):
            code = guard.poll()
            if code is not None or time.monotonic() > deadline:
                raise _not_started(root)
            time.sleep(LOOK_S)
    guard.returncode = 0  # it goes on, and nobody waits for it
    return guard.pid


def stop_appliance(root: Root, *, cancel_jobs: bool = False) -> bool:
    """Stop the supervisor, and return once it has ended; jobs that run go on, and the next supervisor finds them.

    Args:
        cancel_jobs: have all jobs that have not ended cancelled first, and wait until they have ended

    Returns:
        Whether one ran

    Raises:
        CstoolError: it runs on another host, belongs to another user, or does not end
    """
    if cancel_jobs:
        _cancel_all(root)
    found = _holders(root)
    for holder in found:
        _end(root, holder)
    deadline = time.monotonic() + STOP_S
    while (left := _holder(root)) is not None:
        if time.monotonic() > deadline:
            raise CstoolError(f"{root.folder}: its supervisor must end within {STOP_S:g} s, it runs: {left.text}")
        time.sleep(LOOK_S)
    return bool(found)


def appliance_status(root: Root) -> ApplianceStatus:
    """Say how an appliance is.

    Raises:
        CstoolError: its queue cannot be read
    """
    holder = _holder(root)
    with Queue(root) as queue:
        running = [job for job in queue.jobs(phases=(RUNNING, COMPILING)) if job.backend == LOCAL]
        return ApplianceStatus(
            supervisor=None if holder is None else holder.text,
            supervisor_pid=None if holder is None else holder.pid,
            drained=bool(queue.get(DRAINED_SETTING)),
            capacity=queue.capacity(),
            used=_used(running),
            phases=queue.counts(),
            backend=str(queue.get(BACKEND) or LOCAL),
        )


def drain_appliance(root: Root, *, drained: bool = True, wait_s: float | None = 0.0) -> bool:
    """Have an appliance start nothing new, or again do so; running jobs go on.

    Args:
        wait_s: longest time to wait until nothing runs [s]; None for no limit

    Returns:
        Whether nothing runs

    Raises:
        CstoolError: its queue cannot be read or written
    """
    with Queue(root) as queue:
        if bool(queue.get(DRAINED_SETTING)) != drained:
            queue.put(DRAINED_SETTING, drained)
            text = "nothing new is started" if drained else "jobs are started again"
            queue.note(DRAINED if drained else UNDRAINED, text)
        deadline = None if wait_s is None else time.monotonic() + wait_s
        return _wait(lambda: not any(job.backend == LOCAL for job in queue.jobs(phases=(RUNNING, COMPILING))), deadline)


def _holders(root: Root) -> list[Holder]:
    """The live processes of an appliance: its guard and its supervisor."""
    found = (holder_of(path) for path in (root.folder / GUARD_LOCK, root.supervisor_lock))
    return [holder for holder in found if holder is not None]


def _holder(root: Root) -> Holder | None:
    """The supervisor of an appliance, or the guard that is about to start one; None where neither lives."""
    return next(reversed(_holders(root)), None)


def _start_guard(root: Root) -> subprocess.Popen[bytes]:
    """Start a guard, in a session of its own.

    Raises:
        CstoolError: it cannot be started
    """
    try:
        errors = SupervisorLog(root.folder).open()
        try:
            return subprocess.Popen(
                python("-m", "cstool.appliance.queue.guard", str(root.folder)),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
                # A place of modules that is written as one below it stays what it is.
                cwd=Path(cstool.__file__).parents[1],
            )
        finally:
            os.close(errors)
    except OSError as error:
        raise CstoolError(f"{root.folder}: its supervisor cannot be started, got: {error.strerror}") from error


def _not_started(root: Root) -> CstoolError:
    """The error where a supervisor did not begin, with the last that it said."""
    if (holder := _holder(root)) is not None:
        return runs_already(root, holder.text)
    log = SupervisorLog(root.folder)
    said = ""
    with suppress(OSError):
        lines = log.path.read_text(errors="replace").splitlines()
        said = next((line for line in reversed(lines) if line.startswith("error: ")), *lines[-1:])
    return CstoolError(f"{root.folder}: its supervisor must begin, it ended: {said}", f"its log is {log.path}")


def _end(root: Root, holder: Holder) -> None:
    """Tell a guard or a supervisor to end.

    Raises:
        CstoolError: it runs on another host, or belongs to another user
    """
    if holder.pid is None:
        raise CstoolError(f"{root.folder}: its supervisor must run on this host to be stopped, it is {holder.text}")
    try:
        os.kill(holder.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has ended by itself
    except PermissionError as error:
        raise CstoolError(
            f"{root.folder}: its supervisor is for the user who started it to stop, it is {holder.text}"
        ) from error


def _cancel_all(root: Root) -> None:
    """Cancel all jobs that have not ended, and wait until they have.

    Raises:
        CstoolError: jobs run, but there is no supervisor
    """
    with Queue(root) as queue:
        for job in queue.jobs(active=True):
            with suppress(CstoolError):  # it has ended meanwhile
                make_backend(job.backend, root, queue).stop(queue.ask(job.name, CANCEL), CANCEL)

        def have_ended() -> bool:
            left = queue.jobs(active=True)
            if any(job.backend == LOCAL for job in left) and _holder(root) is None:
                raise CstoolError(
                    f"{root.folder}: a supervisor must run to end {left[0].name}, none does",
                    "`cstool appliance start` starts one",
                )
            for name in {job.backend for job in left}:
                make_backend(name, root, queue).refresh([job for job in left if job.backend == name])
            return not left

        _wait(have_ended, None)


def _used(jobs: Sequence[Job]) -> Capacity:
    """The part of the appliance that jobs have: cores, memory, disk and systems of the jobs that execute."""
    running = [job for job in jobs if job.phase == RUNNING]
    return Capacity(
        cpus=tuple(sorted(cpu for job in running for cpu in job.cpus)),
        memory_bytes=sum(job.needs.memory_bytes for job in running),
        disk_bytes=sum(job.needs.disk_bytes for job in running),
        systems=sum(job.needs.systems for job in running),
        compiles=len(jobs) - len(running),
    )


def _wait(condition: Callable[[], bool], deadline: float | None) -> bool:
    """Wait until a condition holds, or until the deadline; return whether it holds."""
    while not condition():
        if deadline is not None and time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_S)
    return True
