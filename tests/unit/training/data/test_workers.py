"""One task for many jobs."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cstool.foundation.errors import DataError
from cstool.training.data.workers import do_each
from tests.contract.refusal import refusal
from tests.patience import wait_until

PROJECT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Note:
    """Write down which process does a job."""

    folder: Path

    def __call__(self, job):
        if job == "fail":
            raise DataError("the job: must do, got one that fails", "take another")
        if job == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        (self.folder / job).write_text(f"{os.getpid()}")


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize(("processes", "others"), [(1, False), (2, True)])
def test_each_job_is_done_once_and_told(tmp_path, processes, others):
    told = []
    do_each(Note(tmp_path), ["a", "b", "c"], processes, told.append)
    assert sorted(told) == sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]
    assert ({path.read_text() for path in tmp_path.iterdir()} != {f"{os.getpid()}"}) == others


KILLED = "--processes: every process must live until its work is done, one was killed"
FEWER = "fewer processes need less memory; what they finished is kept, the same command goes on from there"
FAILED = "the job: must do, got one that fails", "take another"


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize(
    ("job", "processes", "told"), [("fail", 1, FAILED), ("fail", 2, FAILED), ("die", 2, (KILLED, FEWER))]
)
def test_an_error_of_a_job_or_its_death_is_that_of_all(tmp_path, job, processes, told):
    with refusal(DataError, *told):
        do_each(Note(tmp_path), [job, "a", "b"], processes, lambda job: None)


@pytest.mark.lab
def test_no_process_outlives_the_one_that_began_it(tmp_path):
    script = tmp_path / "begin.py"
    script.write_text(
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from cstool.training.data.workers import do_each\n"
        "class Wait:\n"
        "    def __call__(self, job):\n"
        "        Path(job).write_text(str(os.getpid()))\n"
        "        time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    do_each(Wait(), sys.argv[1:], 2, print)\n"
    )
    names = [str(tmp_path / "one"), str(tmp_path / "two")]
    began = subprocess.Popen([sys.executable, str(script), *names], env={**os.environ, "PYTHONPATH": str(PROJECT)})
    written = [Path(name) for name in names]
    wait_until(lambda: began.poll() or all(path.exists() and path.read_text() for path in written), "nothing begins")
    began.kill()
    began.wait()
    numbers = [int(path.read_text()) for path in written]
    wait_until(lambda: not any(is_running(number) for number in numbers), "they live on")


def is_running(number):
    try:
        status = Path(f"/proc/{number}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")
