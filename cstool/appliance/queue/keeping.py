"""The supervisor's side of the keepers: start a keeper, look at an attempt, pass on requests to stop."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import pwd
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cstool.appliance.queue import keeper, kept_run, records
from cstool.appliance.queue.groups import Groups
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, EXECUTE, PREEMPT, JobOrder, Needs
from cstool.appliance.queue.lock_killing import kill_holders
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.appliance.queue.job_folder import JobFolder

ABSENT, BEGINNING, ALIVE, ENDED, DEAD = "absent", "beginning", "alive", "ended", "dead"
"""see `Kept`"""
MEMORY, DISK, TIME, FULL = "memory", "disk", "time", "full"
"""reasons for which a keeper may have stopped a job; see `End.why`"""
HELD = keeper.HELD
"""exit code of a keeper that did nothing: another one is at it, or the attempt began already"""
LOG_LIMIT_BYTES = 2**24
"""largest size of a job's log before it begins anew; the text before that is kept [bytes]"""
TICK_S = 0.1
"""interval at which a keeper looks at its run [s]"""
MEMORY_VARIABLE = "CSTOOL_MEMORY"
"""variable that tells a run its memory budget [bytes]"""
_USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
_ASK_S = 5.0
"""time limit for another user's process to ask [s]"""
# -I and -S: only this program and the standard library, whatever the environment and the folders say; it also
# starts faster and takes less memory. A keeper of another user's job starts as root, who can read all of it.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); from cstool.appliance.queue.keeper import main; sys.exit(main())"
)
_KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
"""variables that Python may need to start; a run has them only where its order says so"""
_PACKAGES = str(Path(__file__).parents[3])
_complaints: weakref.WeakKeyDictionary[subprocess.Popen[bytes], int] = weakref.WeakKeyDictionary()
"""standard errors of keepers: files without a name, by descriptor"""


class User(NamedTuple):
    """The user of a job: its processes run as this user."""

    user_id: int
    group_id: int
    group_ids: tuple[int, ...]


@dataclass(frozen=True)
class End:
    """How an attempt ended.

    Args:
        exit_code: of the run; None where a signal ended it
        signal: number of the signal that ended it; None where it exited
        why: the keeper's reason to stop it, `MEMORY`, `DISK` or `TIME`; `FULL` where it failed, and the disk of its
            folder had no room; else ""
        asked: the last that the keeper was asked for and passed on: "", PREEMPT, CANCEL, CANCEL_NOW
        peak_bytes: most memory that its processes were seen to take together [bytes]
        seconds: its run time [s]
        at: when it ended, by the clock [s since 1970]
    """

    exit_code: int | None
    signal: int | None
    why: str
    asked: str
    peak_bytes: int
    seconds: float
    at: float


@dataclass(frozen=True)
class Kept:
    """The known state of an attempt.

    Args:
        state: `ABSENT`: it never began, start it; `BEGINNING`: it did not begin, but a process holds the job, such as
            its keeper or the remains of an earlier attempt; `ALIVE`: keeper or run live; `ENDED`: see `end`;
            `DEAD`: it began, no process is at it, and its end was not recorded. The lock is the job's, not an
            attempt's: for attempts before the last one `ALIVE` says nothing
        end: how it ended, where the state is `ENDED`
        boot_id: of the host when it began, see `this_boot_id`; "" where it never began, or unknown
        began_at: by the clock [s since 1970]; None: unknown
        memory_guard: "cgroup" or "watch": the means that keeps its memory within the budget; "": unknown
    """

    state: str
    end: End | None = None
    boot_id: str = ""
    began_at: float | None = None
    memory_guard: str = ""


def this_boot_id() -> str:
    """Return an identifier of this boot of the host; "" where the system has none."""
    return kept_run.this_boot_id()


def start(
    folder: JobFolder,
    order: JobOrder,
    stage: str,
    attempt: int,
    *,
    command: Sequence[str],
    cpus: Sequence[int],
    needs: Needs,
    user: User | tuple[int, int, tuple[int, ...]] | None = None,
    outlives: bool = True,
) -> subprocess.Popen[bytes]:
    """Start the keeper of an attempt, which starts the command; it does so once, even if called again.

    Args:
        attempt: counts from 1
        command: words of the whole command
        cpus: cores that it is pinned to; none: it is not pinned
        needs: its budgets; its cores, seconds and sources do not matter here
        user: owner of the job, where that is another user; only root may
        outlives: whether it survives signals to the process group of this process, such as a terminal and a scheduler
            send

    Returns:
        The keeper. Its exit code is 0 where it recorded the end of the attempt, `HELD` where it did nothing, another
        code where it could not begin, see `trouble`.

    Raises:
        CstoolError: it cannot be started
    """
    whose = None if user is None else User(*user)
    started = _start_program(str(folder.path), stage, str(attempt), own_session=outlives)
    groups = _groups()
    if groups is not None:
        groups.sweep()
        name = f"{folder.name}-{records.attempt_name(stage, attempt)}"
        group = groups.add(name, started.pid, needs.memory_bytes, cpus)
    else:
        group = None
    _hand_over(
        started,
        {
            "command": list(command),
            "cwd": str(order.working_dir),
            "environment": {
                **_login_environment(whose, folder.path),
                **order.environment,
                MEMORY_VARIABLE: str(needs.memory_bytes),
            },
            "cpus": list(cpus),
            "memory_bytes": needs.memory_bytes,
            "disk_bytes": needs.disk_bytes,
            "limit_s": needs.limit_s,
            "model_dir": str(order.model_dir) if stage == EXECUTE else "",
            "log_limit_bytes": LOG_LIMIT_BYTES,
            "user": whose,
            "group": "" if group is None else str(group),
            "tick_s": TICK_S,
        },
    )
    return started


def trouble(started: subprocess.Popen[bytes]) -> str | None:
    """Return the reason why a keeper could not begin; None while it lives, or where `look` has the answer."""
    code = started.poll()
    if code in (None, keeper.DONE, HELD, keeper.NOT_RECORDED):
        return None
    lines: list[str] = []
    if (descriptor := _complaints.get(started)) is not None:
        lines = os.pread(descriptor, records.LARGEST_BYTES, 0).decode("utf-8", "replace").split("\n")
    said = [line for line in lines if line.strip()]
    return said[-1] if said else f"its keeper ended with exit code {code}"


def look(folder: JobFolder, stage: str, attempt: int) -> Kept:
    """Return the known state of an attempt; this neither blocks nor raises, even for a damaged folder."""
    try:
        job = records.open_folder(folder.path)
    except OSError:
        return Kept(ABSENT)
    try:
        return _look(job, records.attempt_name(stage, attempt))
    finally:
        os.close(job)


def ask(folder: JobFolder, stage: str, attempt: int, what: str) -> None:
    """Have an attempt stopped: CANCEL and PREEMPT after its step, saved, CANCEL_NOW at once. Asking again is harmless.

    It is written as the owner of the folder: root has another process become that user first.

    Raises:
        CstoolError: it cannot be written
    """
    if what not in (CANCEL, CANCEL_NOW, PREEMPT):
        raise CstoolError(f"{folder.name}: must be asked for {CANCEL}, {CANCEL_NOW} or {PREEMPT}, got {what}")
    try:
        owner = os.stat(folder.path, follow_symlinks=False)
        if os.geteuid() == 0 != owner.st_uid:
            words = (keeper.ASK, str(folder.path), stage, str(attempt), what)
            _ask_as(User(owner.st_uid, owner.st_gid, ()), words)
        else:
            keeper.write_stop(folder.path, stage, attempt, what)
    except OSError as error:
        raise CstoolError(f"{folder.name}: cannot be told to stop, got: {error.strerror or error}") from error


def kill(folder: JobFolder, stage: str, attempt: int, *, spares_keeper: bool) -> list[int]:
    """Kill the processes that hold the lock of a job, and return their numbers; it neither blocks nor raises.

    It is for runs whose keeper is gone: they were told to stop when it died, and may not have stopped.

    Args:
        spares_keeper: leave the keeper of the attempt alone, if it is there: it ends the run by itself
    """
    with suppress(OSError):
        job = records.open_folder(folder.path)
        try:
            spared = _keeper_number(job, records.attempt_name(stage, attempt)) if spares_keeper else None
            return kill_holders(job, () if spared is None else (spared,))
        finally:
            os.close(job)
    return []


def _keeper_number(job: int, name: str) -> int | None:
    """Return the number of the keeper's process, by the record of an attempt; None where the record has none."""
    if (place := _open_attempt(job, name)) is None:
        return None
    try:
        return _count((records.read_record(place, records.BEGAN) or {}).get("pid"), 2**31 - 1)
    finally:
        os.close(place)


def _open_attempt(job: int, name: str) -> int | None:
    """Open the folder of an attempt below its job's; None where it cannot be, such as before the attempt began."""
    try:
        attempts = records.open_below(job, records.ATTEMPTS)
        try:
            return records.open_below(attempts, name)
        finally:
            os.close(attempts)
    except OSError:
        return None


def _ask_as(user: User, words: Sequence[str]) -> None:
    """Ask as a user, in another process; a process that hangs in a file system of that user ends after a while."""
    asking = _start_program(*words)
    _hand_over(asking, {"user": user})
    try:
        asking.wait(_ASK_S)
    except subprocess.TimeoutExpired:
        asking.kill()
        asking.wait()
    if asking.returncode:
        raise OSError(trouble(asking))


def _start_program(*words: str, own_session: bool = True) -> subprocess.Popen[bytes]:
    """Start the program of keepers; it waits for its order.

    Raises:
        CstoolError: it cannot be started
    """
    complaint = -1
    try:
        complaint = os.memfd_create("keeper")
        started = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, _PACKAGES, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaint,
            cwd="/",
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            start_new_session=own_session,
        )
    except OSError as error:
        if complaint >= 0:
            os.close(complaint)
        raise CstoolError(f"{sys.executable}: must start, got: {error.strerror}") from error
    _complaints[started] = complaint
    weakref.finalize(started, os.close, complaint)
    return started


def _hand_over(started: subprocess.Popen[bytes], order: Mapping[str, Any]) -> None:
    """Write its order, without waiting for it to read."""
    assert started.stdin is not None
    content = json.dumps(order).encode()
    with suppress(OSError):
        fcntl.fcntl(started.stdin, fcntl.F_SETPIPE_SZ, len(content) + 1)
    with suppress(BrokenPipeError):  # it ended; `trouble` says why
        try:
            started.stdin.write(content)
        finally:
            started.stdin.close()


@functools.cache
def _groups() -> Groups | None:
    return Groups.find()


def _login_environment(user: User | None, folder: Path) -> dict[str, str]:
    """Return the variables that a login sets, not the variables of this process."""
    user_id = os.geteuid() if user is None else user.user_id
    name, home, shell = str(user_id), str(folder), "/bin/sh"
    with suppress(KeyError):
        known = pwd.getpwuid(user_id)
        name, home, shell = known.pw_name, known.pw_dir, known.pw_shell or shell
    language = os.environ.get("LANG", "C.UTF-8")
    return {"USER": name, "LOGNAME": name, "HOME": home, "SHELL": shell, "PATH": _USUAL_PATH, "LANG": language}


def _look(job: int, name: str) -> Kept:
    """See `look`. An attempt that had begun when the lock was free is over: it is not begun again."""
    before = _begun(job, name)
    while before is None or before.end is None:
        if records.is_locked(job):
            return Kept(BEGINNING) if before is None else replace(before, state=ALIVE)
        now = _begun(job, name)  # it may have begun, or ended, since
        if now is None:
            return Kept(ABSENT)
        if before is not None:
            return now
        before = now
    return before


def _begun(job: int, name: str) -> Kept | None:
    """Read the records of an attempt: it has ended, or, as far as they know, it is dead; None where it never began."""
    if (place := _open_attempt(job, name)) is None:
        return None
    try:
        began = records.read_record(place, records.BEGAN) or {}
        end = _end_of(records.read_record(place, records.END))
    finally:
        os.close(place)
    boot_id, guard = began.get("boot_id"), began.get("memory_guard")
    return Kept(
        DEAD if end is None else ENDED,
        end,
        boot_id=boot_id if isinstance(boot_id, str) and len(boot_id) <= 64 and boot_id.isascii() else "",
        began_at=_number(began.get("at")),
        memory_guard=guard if guard in ("cgroup", "watch") else "",
    )


def _end_of(record: Mapping[str, Any] | None) -> End | None:
    """Return the end that a record tells of; None where a keeper would not have written it."""
    if record is None:
        return None
    code, number = _count(record.get("exit_code"), 255), _count(record.get("signal"), 64)
    why, asked = record.get("why"), record.get("asked")
    peak = _count(record.get("peak_bytes"), 2**63 - 1)
    seconds, at = _number(record.get("seconds")), _number(record.get("at"))
    if (code is None) == (number is None) or peak is None or seconds is None or at is None:
        return None
    if why not in ("", MEMORY, DISK, TIME, FULL) or asked not in ("", PREEMPT, CANCEL, CANCEL_NOW):
        return None
    return End(code, number, why, asked, peak, seconds, at)


def _count(found: object, at_most: int) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= at_most else None


def _number(found: object) -> float | None:
    """Return a number as a time of the clock, in seconds; None where it is not valid."""
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return float(found) if 0 <= found < 2**53 else None
