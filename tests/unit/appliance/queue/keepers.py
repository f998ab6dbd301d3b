"""Jobs that are small Python programs, kept by real keepers; whatever a test does, none of their processes stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from cstool.appliance.queue import attempt as module
from cstool.appliance.queue import records
from cstool.appliance.queue.attempt import ENDED, Attempt, AttemptState, End, Keeper
from cstool.appliance.queue.groups import Groups
from cstool.appliance.queue.job import EXECUTE, Needs
from cstool.appliance.queue.job_folder import JobFolder, User
from tests.patience import PATIENCE_S, wait_until
from tests.unit.appliance.queue.queues import an_order

TICK_S = 0.005
NEEDS = Needs(cores=1, memory_bytes=2**30, disk_bytes=2**30, systems=1)
STOPS_WELL = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: [print("SIGTERM", flush=True), sys.exit(130)])
print("ready", flush=True)
while True: time.sleep(0.01)
"""
IGNORES = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True: time.sleep(0.01)
"""


def python(script: str, program: str = sys.executable) -> list[str]:
    return [program, "-I", "-S", "-c", script]


class KeptJob(AbstractContextManager["KeptJob"]):
    """A job whose attempts are started by hand."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True)
        self.folder = JobFolder(path)
        self.model_dir = path.parent / f"{path.name}-model_dir"
        self.keepers: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        script: str | Sequence[str],
        *,
        stage: str = EXECUTE,
        attempt: int = 1,
        cpus: Sequence[int] = (),
        user: User | None = None,
        order: dict[str, Any] | None = None,
        groups: Groups | None = None,
        **needs: Any,
    ) -> Keeper:
        usual = {
            "working_dir": Path("/"),
            "environment": {},
            "model_dir": self.model_dir,
            "needs": replace(NEEDS, **needs),
        }
        command = python(script) if isinstance(script, str) else script
        with mock.patch.multiple(module, _groups=lambda: groups, TICK_S=TICK_S):
            whole = an_order(**{**usual, **(order or {})})
            keeper = Attempt(self.folder, stage, attempt).start(whole, command, cpus, user=user)
        self.keepers.append(keeper)
        return keeper

    def start_by_hand(self, script: str, before: str = "", attempt: int = 1, **changes: Any) -> subprocess.Popen[bytes]:
        """Start a keeper with what `start` cannot say; a program runs before it in the same process."""
        program = f"import sys; sys.path.append({str(Path(__file__).parents[4])!r})\n{before}\n"
        program += "from cstool.appliance.queue.keeper import main; sys.exit(main())"
        words = [*python(program), str(self.folder.path), EXECUTE, str(attempt)]
        keeper = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        self.keepers.append(keeper)
        assert keeper.stdin is not None
        with keeper.stdin as stream:
            order = {"command": python(script), "cwd": "/", "environment": {}, "cpus": [], "tick_s": TICK_S, **changes}
            stream.write(json.dumps(order).encode())
        return keeper

    def look(self, attempt: int = 1, stage: str = EXECUTE) -> AttemptState:
        return Attempt(self.folder, stage, attempt).look()

    def ask(self, what: str, attempt: int = 1) -> None:
        Attempt(self.folder, EXECUTE, attempt).ask(what)

    def end(self, attempt: int = 1, stage: str = EXECUTE, code: int = 0) -> End:
        assert self.keepers[-1].wait(PATIENCE_S) == code
        found = self.look(attempt, stage)
        assert found.state == ENDED
        assert found.end is not None
        return found.end

    def run(self, script: str | Sequence[str], **options: Any) -> End:
        self.start(script, **options)
        return self.end(options.get("attempt", 1), options.get("stage", EXECUTE))

    def text(self, name: str = "out") -> str:
        with suppress(FileNotFoundError):
            return (self.folder.path / name).read_text()
        return ""

    def wait_for(self, words: str, name: str = "out") -> None:
        wait_until(lambda: words in self.text(name), f"no {words!r} in {name}")

    def holders(self) -> list[int]:
        return [number for number in map(int, filter(str.isdecimal, os.listdir("/proc"))) if self._has_lock(number)]

    def run_process(self) -> int:
        """Return the number of the run's process: who holds the lock and is no keeper."""
        keepers = {keeper.pid for keeper in self.keepers}
        wait_until(lambda: bool({*self.holders()} - keepers), "no run")
        return next(iter({*self.holders()} - keepers))

    def __exit__(self, *error: object) -> None:
        for keeper in self.keepers:
            if keeper.poll() is None:
                keeper.kill()
            keeper.wait()
        while holders := self.holders():
            for number in holders:
                with suppress(OSError):
                    os.kill(number, signal.SIGKILL)

    def _has_lock(self, number: int) -> bool:
        lock = os.path.realpath(self.folder.path / records.LOCK)
        with suppress(OSError):
            files = [f"/proc/{number}/fd/{name}" for name in os.listdir(f"/proc/{number}/fd")]
            return number != os.getpid() and lock in map(os.path.realpath, files)
        return False


def is_there(number: int) -> bool:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
