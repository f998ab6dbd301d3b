"""Local appliances for tests: real supervisors, jobs that are small programs; no process stays, whatever happens."""

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cstool.appliance.queue.appliance import start_appliance
from cstool.appliance.queue.client import Jobs, open_jobs
from cstool.appliance.queue.guard import GUARD_LOCK
from cstool.appliance.queue.holders import holder_of
from cstool.appliance.queue.job import SUPERVISOR_STARTED, Capacity, Job, JobOrder, Needs
from cstool.appliance.queue.queue import Queue
from cstool.appliance.queue.root import Root, open_root
from tests.appliance_log import faults
from tests.patience import wait_until
from tests.unit.appliance.queue.queues import an_order

NEEDS = Needs(cores=1, memory_bytes=2**29, disk_bytes=2**24, systems=1)
CAPACITY = Capacity(
    cpus=tuple(sorted(os.sched_getaffinity(0))[:2]), memory_bytes=2**34, disk_bytes=2**34, systems=8, compiles=1
)
FRESH_S = 2.0
"""a job that was ready for less may be overtaken: a supervisor decides by what it has read [s]"""
WRITES = """
import os, sys, time
file = sys.argv[1]
def note(what):
    with open(file, "a") as stream:
        stream.write(f"{what} {os.getpid()}\\n")
note("begins")
time.sleep(float(sys.argv[2]))
note("ends")
"""
"""words after it: a file that it writes to, and how long it takes"""


def small_order(folder: Path, script: str, *words: str, **changes: Any) -> JobOrder:
    """Return the order of a job that is a small program of the standard library.

    Args:
        folder: which becomes its model_dir
        words: after the script; those of a run follow, --params and --lanes
    """
    usual = {"program": (sys.executable, "-I", "-S", "-c", script), "run_words": words, "compile_words": ()}
    usual |= {"working_dir": Path("/"), "environment": {}, "model_dir": folder, "max_steps": 4, "needs": NEEDS}
    usual |= {"compile_dir": folder.parent / "compiled", "compile_key": "", "labels": {}}
    return an_order(**{**usual, **changes})


class TestAppliance(AbstractContextManager["TestAppliance"]):
    """An appliance. A context manager: at its end no process of it is left.

    Args:
        folder: of it; made where it is not there
    """

    __test__ = False

    def __init__(self, folder: Path, capacity: Capacity = CAPACITY) -> None:
        self.root: Root = open_root(folder, makes=True)
        self.capacity = capacity
        self.jobs: Jobs = open_jobs(folder, makes=True)
        self._guards: list[int] = []

    def __exit__(self, *error: object) -> None:
        self.jobs.close()
        self.end_all()

    @property
    def queue(self) -> Queue:
        return self.jobs.queue

    def start(self) -> int:
        self._guards.append(start_appliance(self.root, self.capacity))
        return self._guards[-1]

    def supervisor(self) -> int | None:
        holder = holder_of(self.root.supervisor_lock)
        return None if holder is None else holder.pid

    def kill_supervisor(self) -> int:
        """Kill a supervisor as soon as there is one, and return what its number was."""
        while True:
            wait_until(lambda: self.supervisor() is not None, "no supervisor")
            if (number := self.supervisor()) is not None:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
                    return number

    def starts(self) -> int:
        return sum(event.kind == SUPERVISOR_STARTED for event in self.queue.events(""))

    def wait(self, jobs: Iterable[Job | str], seconds: float = 120.0) -> list[Job]:
        names = [job if isinstance(job, str) else job.name for job in jobs]
        found = self.jobs.wait(names, seconds)
        left = [(job.name, job.phase, job.stage, job.reason) for job in found if not job.has_ended]
        assert not left, f"jobs have not ended: {left}; {self.log()[-3000:]}"
        return found

    def wait_for_phase(self, job: Job, *phases: str) -> Job:
        wait_until(lambda: self.queue.job(job.name).phase in phases, f"{job.name} is never {phases}")
        return self.queue.job(job.name)

    def kinds(self, job: Job) -> list[str]:
        return [event.kind for event in self.queue.events(job.name)]

    def faults(self, *, all_end: bool = True, fresh_s: float = FRESH_S) -> list[str]:
        """Return what an independent reader of the events finds to be wrong."""
        events = [asdict(event) for event in self.queue.events()]
        return faults(events, asdict(self.capacity), backfills=True, fresh_s=fresh_s, all_end=all_end)

    def log(self) -> str:
        with suppress(OSError):
            return self.root.supervisor_log.read_text()
        return ""

    def end_all(self) -> None:
        end_processes_of(self.root.folder)
        for guard in self._guards:
            with suppress(ChildProcessError):
                os.waitpid(guard, 0)
        end_processes_of(self.root.folder)


def end_processes_of(folder: Path) -> None:
    give_up_s = time.monotonic() + 30
    while time.monotonic() < give_up_s:
        with suppress(Exception):
            holder = holder_of(folder / GUARD_LOCK)
            if holder is not None and holder.pid is not None:
                os.kill(holder.pid, signal.SIGKILL)
        found = _processes_of(folder)
        for number in found:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.01)
    raise AssertionError(f"processes of {folder} do not end: {_processes_of(folder)}")


def _processes_of(folder: Path) -> list[int]:
    return [
        number
        for number in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if number != os.getpid() and _has_open(number, f"{folder}/")
    ]


def _has_open(number: int, beginning: str) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{number}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{number}/fd/{name}").startswith(beginning):
                    return True
    return False
