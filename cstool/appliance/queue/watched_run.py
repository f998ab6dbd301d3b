"""A run as its keeper sees it: begun once, watched, stopped where it must, its end recorded. It imports little.

The keeper signals its own children alone, before it asks for their exit codes: until then the system gives no other
process their numbers. Times are readings of a clock that never goes back.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from contextlib import suppress
from typing import Any

from cstool.appliance.queue import records
from cstool.appliance.queue.run_start import STOPS, Order, become_subreaper, start_run
from cstool.appliance.queue.watching import Memory, Tree, disk_bytes

DISK_TICK_S = 2.0
_DISK_SHARE = 0.02
"""at most this share of the time goes into looking at the disk"""
_LEFT_S, _GONE_S = 2.0, 10.0
"""time for the remaining processes of a run to end, and to be gone after they were killed [s]"""
FULL_BYTES = 2**16
"""least free room of a disk; with less, a run may fail for want of room [bytes]"""
_CHUNK_BYTES = 2**16
_REQUESTS = ("", "preempt", "cancel", "cancel_now")
"""see `job.REQUESTS`, each overrides the ones before it"""


class Run:
    """A run, from its start to its end.

    Args:
        stage: of the job
        job: descriptor of its folder
        lock: of the job, taken
    """

    def __init__(self, order: Order, stage: str, job: int, lock: int) -> None:
        self._order, self._stage, self._job, self._lock = order, stage, job, lock
        self._logs: list[LimitedLog] = []
        self._tree, self._memory = Tree(os.getpid()), Memory()
        self._disk_before, self._disk_at = 0, 0.0
        self._oom_kills = self._killed_by_group()
        self._why = self._asked = ""
        self._is_stopping = False
        self._exceeded, self._kill_at = "", 0.0
        self._place = self._child = -1
        self._began = 0.0

    def begin(self, attempt: int) -> bool:
        """Make the folder of the attempt and start the run; return False where that folder was made before.

        Raises:
            OSError: it cannot begin; nothing is left behind
        """
        with suppress(FileExistsError):
            os.mkdir(records.ATTEMPTS, 0o700, dir_fd=self._job)
        attempts = records.open_folder(records.ATTEMPTS, inside=self._job)
        name = records.attempt_name(self._stage, attempt)
        try:
            os.mkdir(name, 0o700, dir_fd=attempts)
        except FileExistsError:
            return False
        try:
            self._place = records.open_folder(name, inside=attempts)
            # What a compiler reports is no part of the log of the run.
            names = ("compile" if self._stage == "compile" else "out", "err")
            self._logs = [LimitedLog(self._job, name, self._order.log_limit_bytes) for name in names]
            self._disk_before = _disk_before(attempts, self._stage, attempt, self._order)
            records.reserve_end(self._place)
            records.write_record(self._place, records.BEGAN, self._beginning())
            os.fsync(attempts)
            os.fsync(self._job)
            self._began = time.monotonic()
            logs = [log.descriptor for log in self._logs]
            become_subreaper()
            self._child = start_run(self._order, self._stage, self._job, self._lock, logs)
        except Exception:
            records.remove_attempt(attempts, name)
            raise
        return True

    def keep(self) -> bool:
        """Watch the run until it has ended, end its remaining processes, and record its end; return whether it did."""
        while not self._has_ended():
            with suppress(OSError, MemoryError):  # no more files, no more memory: the next time
                self._look()
        seconds = time.monotonic() - self._began
        if self._killed_by_group() > self._oom_kills:
            self._why = "memory"
        self._end_others(0.0 if self._why == "memory" or self._asked == "cancel_now" else _LEFT_S)
        _, status = os.waitpid(self._child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code > 0 and not self._why and _is_full(self._job):
            self._why = "full"  # and what it had to say may be nowhere
        with suppress(OSError):
            for log in self._logs:
                log.limit()
        end = {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "why": self._why,
            "asked": self._asked,
            # What ends at once is seen by nobody.
            "peak_bytes": self._memory.peak_bytes or resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
            "seconds": seconds,
            "at": time.time(),
        }
        return _record(self._place, end, self._order.record_s)

    def _beginning(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "boot_id": records.this_boot_id(),
            "at": time.time(),
            "boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
            "memory_guard": "cgroup" if self._order.group else "watch",
            "disk_bytes": self._disk_before,
        }

    def _has_ended(self) -> bool:
        """Wait for a moment, or until something happens; an ended child stays as it is until `keep` is done with it."""
        came = signal.sigtimedwait(STOPS | {signal.SIGCHLD}, self._order.tick_s)
        if os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        if came is not None and came.si_signo in STOPS:
            self._stop()
        return False

    def _look(self) -> None:
        now = time.monotonic()
        asked = (records.read_record(self._place, records.STOP) or {}).get("asked")
        if asked in _REQUESTS[_REQUESTS.index(self._asked) + 1 :]:
            self._asked = asked
            self._kill() if asked == "cancel_now" else self._stop()
        processes = self._tree.scan()
        for number, (state, parent) in processes.items():
            if state == "Z" and parent == os.getpid() and number != self._child:
                _reap(number)
        is_over = self._memory.read(list(processes), None if self._order.group else self._order.memory_bytes)
        if is_over or self._killed_by_group() > self._oom_kills:
            self._why = "memory"
            self._kill()
        if self._order.limit_s is not None and now - self._began > self._order.limit_s:
            self._exceed("time", now)
        if self._order.model_dir and self._order.disk_bytes is not None and now >= self._disk_at:
            grown = disk_bytes(self._order.model_dir) - self._disk_before
            after = time.monotonic()
            self._disk_at = after + max(DISK_TICK_S, (after - now) / _DISK_SHARE)
            if grown > self._order.disk_bytes:
                self._exceed("disk", now)
        if self._exceeded and now >= self._kill_at:
            self._why = self._why or self._exceeded
            self._kill()
        for log in self._logs:
            log.limit()

    def _exceed(self, what: str, now: float) -> None:
        """Have it stop; a run that already stops, because it was asked to, may go on until the grace is over."""
        if not self._exceeded:
            self._exceeded, self._kill_at = what, now + self._order.grace_s
            if not self._is_stopping:
                self._why = what
                self._stop()

    def _stop(self) -> None:
        if not self._is_stopping:
            self._is_stopping = True
            os.kill(self._child, signal.SIGTERM)

    def _kill(self) -> None:
        """Kill the run; its children become ours, see `_end_others`."""
        os.kill(self._child, signal.SIGKILL)

    def _killed_by_group(self) -> int:
        """Number of processes that the control group killed for memory; see memory.events in the kernel's cgroup-v2."""
        if self._order.group:
            try:
                with open(f"{self._order.group}/memory.events", "rb") as file:
                    return next((int(line.split()[1]) for line in file if line.startswith(b"oom_kill ")), 0)
            except (OSError, ValueError):
                pass
        return 0

    def _end_others(self, grace_s: float) -> None:
        """Let the remaining processes of the run end, then kill them; orphans become our children, and are next."""
        kill_at = time.monotonic() + grace_s
        give_up_at = kill_at + _GONE_S
        while (now := time.monotonic()) < give_up_at:
            with suppress(OSError, MemoryError):
                others = self._tree.children()
                others.pop(self._child, None)
                if not others:
                    return
                for number, state in others.items():
                    if state == "Z":
                        _reap(number)
                    elif now >= kill_at:
                        with suppress(PermissionError):  # it is another user's
                            os.kill(number, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, 0.02)


def _disk_before(attempts: int, stage: str, attempt: int, order: Order) -> int:
    """Size of model_dir before the first attempt [bytes]: the growth by earlier attempts counts."""
    for earlier in range(1, attempt):
        with suppress(OSError), records.opened_folder(records.attempt_name(stage, earlier), inside=attempts) as place:
            found = (records.read_record(place, records.BEGAN) or {}).get("disk_bytes")
            if isinstance(found, int):
                return found
    return disk_bytes(order.model_dir) if order.model_dir else 0


def _is_full(folder: int) -> bool:
    """Whether the disk of an open folder has no room."""
    with suppress(OSError):
        found = os.fstatvfs(folder)
        return found.f_bavail * found.f_frsize < FULL_BYTES
    return False


def _reap(number: int) -> None:
    with suppress(OSError):
        os.waitpid(number, os.WNOHANG)


def _record(place: int, end: dict[str, Any], patience_s: float) -> bool:
    """Write the record of the end; on a full disk, try for a while."""
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            records.write_end(place, end)
            return True
        except OSError:
            if time.monotonic() >= give_up_at:
                return False
            time.sleep(min(1.0, patience_s))


class LimitedLog:
    """A file that a run appends to. When it is too long, its text moves to `<name>.1`, and it is cut to nothing.

    The run keeps the file open, so the file stays, and a reader that follows it sees it become shorter. On a full disk
    the older text goes first, and if that does not help, this one.

    Args:
        folder: descriptor of the folder that it is in
        limit_bytes: 0 for no limit [bytes]
    """

    def __init__(self, folder: int, name: str, limit_bytes: int) -> None:
        self._folder, self._name, self._limit_bytes = folder, name, limit_bytes
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor = os.open(name, flags, 0o600, dir_fd=folder)

    def limit(self) -> None:
        """Begin anew if it is too long."""
        if not 0 < self._limit_bytes < os.fstat(self.descriptor).st_size:
            return
        older = f"{self._name}.1"
        for _ in range(2):
            try:
                self._copy(older)
                break
            except OSError:
                self._remove(older)
        os.ftruncate(self.descriptor, 0)

    def _copy(self, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(name, flags, 0o600, dir_fd=self._folder)
        try:
            at = 0
            # As long as something comes, but not for as long as something comes.
            while at < 2 * self._limit_bytes and (chunk := os.pread(self.descriptor, _CHUNK_BYTES, at)):
                at += os.write(target, chunk)
        finally:
            os.close(target)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._folder)
