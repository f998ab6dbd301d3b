"""Runs in several processes by MPI, for tests: started, found, signalled, and what they said."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from cstool.training.store import FILE_NAME, committed_step, find_shards
from tests.patience import wait_until
from tests.unit.training.store.stored import newest_common_step

MPIRUN = str(Path(sys.executable).with_name("mpirun"))
CSTOOL = (sys.executable, "-m", "cstool")
MARK = "CSTOOL_TEST_RUN"
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Said:
    exit_code: int
    output: str
    errors: str


class Command:
    """A command under way, with all processes that it starts. Use as a context manager: it leaves none behind."""

    def __init__(self, *words: str, environment: Mapping[str, str] | None = None) -> None:
        self._mark = uuid4().hex
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {}), MARK: self._mark},
            start_new_session=True,
        )

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.communicate()

    def processes(self) -> list[int]:
        """All that are alive: the command, mpirun, ranks and what is between them."""
        mine = f"{MARK}={self._mark}".encode()
        return [process for process, environment in _environments() if mine in environment]

    def rank(self, number: int) -> int:
        """The process of a rank, once it is there and computes."""
        found: list[int] = []

        def is_there() -> bool:
            mine = {f"{MARK}={self._mark}".encode(), f"PMI_RANK={number}".encode()}
            found[:] = [
                process for process, environment in _environments() if mine <= environment and _is_python(process)
            ]
            return bool(found)

        wait_until(is_there, f"there is no rank {number}")
        return found[0]

    def wait(self) -> Said:
        """What came of it, once it has ended, and nothing of it is left."""
        output, errors = self.process.communicate(timeout=PATIENCE_S)
        wait_until(lambda: not self.processes(), "processes are left behind")
        return Said(self.process.returncode, output, errors)


def run(*words: str, environment: Mapping[str, str] | None = None) -> Said:
    with Command(*words, environment=environment) as command:
        return command.wait()


def launched(file: Path, *flags: str, ranks: int = 2) -> Sequence[str]:
    """The command that starts so many ranks itself."""
    return (*CSTOOL, "run", "-p", str(file), "--launch", "mpi", "--ranks", str(ranks), "--lanes", "1", *flags)


def by_mpirun(file: Path, *flags: str, ranks: int = 2) -> Sequence[str]:
    """The command as a user's own mpirun has it."""
    return (MPIRUN, "-n", str(ranks), *CSTOOL, "run", "-p", str(file), "--lanes", "1", *flags)


def committed(model_dir: Path) -> int:
    """The newest step that a run may go on from there: of one file, or of shards that all hold it; 0 for none."""
    return max(committed_step(model_dir / FILE_NAME) or 0, newest_common_step(find_shards(model_dir)) or 0)


def _environments() -> list[tuple[int, set[bytes]]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            # A process of somebody else, or one that has just gone.
            with suppress(OSError):
                found.append((int(folder.name), set((folder / "environ").read_bytes().split(b"\0"))))
    return found


def _is_python(process: int) -> bool:
    """Whether a process is a rank itself, and not the shell around it."""
    with suppress(OSError):
        return Path(os.readlink(f"/proc/{process}/exe")).name.startswith("python")
    return False
