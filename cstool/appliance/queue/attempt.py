"""An attempt to do a stage of a job: its keeper started, looked at, asked to stop, killed.

The other side is the process `keeper`; `records` describes the files between the two.
"""

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
from typing import Any

from cstool.appliance.queue import keeper, records
from cstool.appliance.queue.groups import Groups
from cstool.appliance.queue.holders import kill_holders
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, EXECUTE, PREEMPT, REQUESTS, JobOrder
from cstool.appliance.queue.job_folder import JobFolder, User
from cstool.appliance.queue.run_start import Order
from cstool.foundation.errors import CstoolError

ABSENT, BEGINNING, ALIVE, ENDED, DEAD = "absent", "beginning", "alive", "ended", "dead"
"""see `AttemptState`"""
MEMORY, DISK, TIME, FULL = "memory", "disk", "time", "full"
"""reasons of a keeper to stop a job; see `End.why`"""
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
class AttemptState:
    """The known state of an attempt.

    Args:
        state: `ABSENT`: it never began, start it; `BEGINNING`: it did not begin, but a process holds the job, such as
            its keeper or the remains of an earlier attempt; `ALIVE`: keeper or run live; `ENDED`: see `end`;
            `DEAD`: it began, no process is at it, and its end was not recorded. The lock is the job's, not an
            attempt's: for attempts before the last one `ALIVE` says nothing
        end: how it ended, where the state is `ENDED`
        boot_id: of the host when it began, see `records.this_boot_id`; "" where it never began, or unknown
        began_at: by the clock [s since 1970]; None: unknown
        memory_guard: "cgroup" or "watch": the means that keeps its memory within the budget; "": unknown
    """

    state: str
    end: End | None = None
    boot_id: str = ""
    began_at: float | None = None
    memory_guard: str = ""


class Keeper(subprocess.Popen[bytes]):
    """The process of a keeper. Its exit code is 0 where it recorded the end, `HELD` where it did nothing; see `keeper`.

    Args:
        words: of its program, which waits for its order then
        own_session: whether it survives signals to the process group of this process, such as a terminal and a
            scheduler send

    Raises:
        CstoolError: it cannot be started
    """

    def __init__(self, *words: str, own_session: bool = True) -> None:
        try:
            self._complaint = os.memfd_create("keeper")  # a file without a name
            weakref.finalize(self, os.close, self._complaint)
            super().__init__(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _PACKAGES, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._complaint,
                cwd="/",
                env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                start_new_session=own_session,
            )
        except OSError as error:
            raise CstoolError(f"{sys.executable}: must start, got: {error.strerror}") from error

    def hand_over(self, order: Mapping[str, Any]) -> None:
        """Write its order, without waiting for it to read."""
        assert self.stdin is not None
        content = json.dumps(order).encode()
        with suppress(OSError):
            fcntl.fcntl(self.stdin, fcntl.F_SETPIPE_SZ, len(content) + 1)
        with suppress(BrokenPipeError):  # it ended; `trouble` says why
            try:
                self.stdin.write(content)
            finally:
                self.stdin.close()

    def trouble(self) -> str | None:
        """Return the reason why it could not begin; None while it lives, or where `Attempt.look` has the answer."""
        code = self.poll()
        if code in (None, keeper.DONE, HELD, keeper.NOT_RECORDED):
            return None
        said = os.pread(self._complaint, records.LARGEST_BYTES, 0).decode("utf-8", "replace").split("\n")
        return next((line for line in reversed(said) if line.strip()), f"its keeper ended with exit code {code}")


@dataclass(frozen=True)
class Attempt:
    """An attempt to do a stage of a job; it need not have begun.

    Args:
        folder: of the job
        stage: `COMPILE` or `EXECUTE`
        number: counts from 1
    """

    folder: JobFolder
    stage: str
    number: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return records.attempt_name(self.stage, self.number)

    @property
    def path(self) -> Path:
        """Its folder, with the records."""
        return self.folder.attempts / self.name

    def start(
        self,
        order: JobOrder,
        command: Sequence[str],
        cpus: Sequence[int],
        *,
        user: User | None = None,
        outlives: bool = True,
    ) -> Keeper:
        """Start its keeper, which starts the command; it does so once, even if called again.

        Args:
            command: words of the whole command
            cpus: cores that it is pinned to; none: it is not pinned
            user: owner of the job, where that is another user; only root may
            outlives: as `own_session` of `Keeper`

        Raises:
            CstoolError: it cannot be started
        """
        needs = order.needs
        started = Keeper(str(self.folder.path), self.stage, str(self.number), own_session=outlives)
        group = None
        if (groups := _groups()) is not None:
            groups.sweep()
            group = groups.add(f"{self.folder.name}-{self.name}", started.pid, needs.memory_bytes, cpus)
        environment = {
            **_login_environment(user, self.folder.path),
            **order.environment,
            MEMORY_VARIABLE: str(needs.memory_bytes),
        }
        words = Order(
            command=list(command),
            cwd=str(order.working_dir),
            environment=environment,
            cpus=list(cpus),
            memory_bytes=needs.memory_bytes,
            disk_bytes=needs.disk_bytes,
            limit_s=needs.limit_s,
            model_dir=str(order.model_dir) if self.stage == EXECUTE else "",
            log_limit_bytes=LOG_LIMIT_BYTES,
            user=user,
            group="" if group is None else str(group),
            tick_s=TICK_S,
        )
        started.hand_over(words._asdict())
        return started

    def look(self) -> AttemptState:
        """Return its known state; this neither blocks nor raises, even for a damaged folder.

        An attempt that had begun when the lock was free is over: it is not begun again.
        """
        with suppress(OSError), records.opened_folder(self.folder.path) as job:
            before = self._begun(job)
            while before is None or before.end is None:
                if records.is_locked(job):
                    return AttemptState(BEGINNING) if before is None else replace(before, state=ALIVE)
                now = self._begun(job)  # it may have begun, or ended, since
                if now is None:
                    break
                if before is not None:
                    return now
                before = now
            else:
                return before
        return AttemptState(ABSENT)

    def ask(self, what: str) -> None:
        """Have it stopped: CANCEL and PREEMPT after its step, saved, CANCEL_NOW at once. Asking again is harmless.

        It is written as the owner of the folder: root has another process become that user first, and a process that
        hangs in a file system of that user ends after a while.

        Raises:
            CstoolError: it cannot be written
        """
        name = self.folder.name
        if what not in (CANCEL, CANCEL_NOW, PREEMPT):
            raise CstoolError(f"{name}: must be asked for {CANCEL}, {CANCEL_NOW} or {PREEMPT}, got {what}")
        try:
            owner = os.stat(self.folder.path, follow_symlinks=False)
            if os.geteuid() != 0 or owner.st_uid == 0:
                keeper.write_stop(self.folder.path, self.stage, self.number, what)
                return
            asking = Keeper(keeper.ASK, str(self.folder.path), self.stage, str(self.number), what)
            asking.hand_over({"user": User(owner.st_uid, owner.st_gid, ())})
            try:
                asking.wait(_ASK_S)
            except subprocess.TimeoutExpired:
                asking.kill()
                asking.wait()
            if asking.returncode:
                raise OSError(asking.trouble())
        except OSError as error:
            raise CstoolError(f"{name}: cannot be told to stop, got: {error.strerror or error}") from error

    def kill(self, *, spares_keeper: bool) -> list[int]:
        """Kill the processes that hold the lock of its job, and return their numbers; it neither blocks nor raises.

        It is for runs whose keeper is gone: they were told to stop when it died, and may not have stopped.

        Args:
            spares_keeper: leave the keeper of the attempt alone, if it is there: it ends the run by itself
        """
        with suppress(OSError), records.opened_folder(self.folder.path) as job:
            spared: tuple[int, ...] = ()
            with suppress(OSError), records.opened_folder(records.ATTEMPTS, self.name, inside=job) as place:
                number = (records.read_record(place, records.BEGAN) or {}).get("pid")
                spared = (number,) if spares_keeper and records.is_count(number) else ()
            return kill_holders(job, spared)
        return []

    def _begun(self, job: int) -> AttemptState | None:
        """Read its records: it has ended, or, as far as they know, it is dead; None where it never began."""
        try:
            with records.opened_folder(records.ATTEMPTS, self.name, inside=job) as place:
                began = records.read_record(place, records.BEGAN) or {}
                end = _end_of(records.read_record(place, records.END) or {})
        except OSError:
            return None
        boot_id, guard = began.get("boot_id"), began.get("memory_guard")
        return AttemptState(
            DEAD if end is None else ENDED,
            end,
            boot_id=boot_id if isinstance(boot_id, str) and len(boot_id) <= 64 and boot_id.isascii() else "",
            began_at=_number(began.get("at")),
            memory_guard=guard if guard in ("cgroup", "watch") else "",
        )


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


def _end_of(record: Mapping[str, Any]) -> End | None:
    """Return the end that a record tells of; None where a keeper would not have written it."""
    code, number, peak = (record.get(name) for name in ("exit_code", "signal", "peak_bytes"))
    code, number = code if records.is_count(code, 255) else None, number if records.is_count(number, 64) else None
    why, asked = record.get("why"), record.get("asked")
    seconds, at = _number(record.get("seconds")), _number(record.get("at"))
    if (code is None) == (number is None) or not records.is_count(peak) or seconds is None or at is None:
        return None
    if why not in ("", MEMORY, DISK, TIME, FULL) or asked not in REQUESTS:
        return None
    return End(code, number, why, asked, peak, seconds, at)


def _number(found: object) -> float | None:
    """Return a number as a time of the clock, in seconds; None where it is not valid."""
    if not isinstance(found, int | float) or isinstance(found, bool):
        return None
    return float(found) if 0 <= found < 2**53 else None
