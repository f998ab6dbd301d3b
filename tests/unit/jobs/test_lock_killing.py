"""What holds the lock of a job is killed, and nothing else."""

from __future__ import annotations

import os
import signal

import pytest

from cstool.jobs import keeping, records
from cstool.jobs.job import CANCEL_NOW, EXECUTE
from cstool.jobs.lock_killing import kill_holders
from tests.patience import wait_until
from tests.unit.jobs.keepers import IGNORES, KeptJob, is_there


def begun(job: KeptJob) -> tuple[int, int]:
    """Start a run that does not stop; return the processes of keeper and run."""
    keeper = job.start(IGNORES)
    job.wait_for("ready")
    return keeper.pid, job.run_process()


def kill(job: KeptJob, *, spares_keeper: bool = True) -> list[int]:
    return keeping.kill(job.folder, EXECUTE, 1, spares_keeper=spares_keeper)


def test_a_run_that_does_not_stop_when_its_keeper_is_killed_is_reached_by_its_lock(job):
    _, run = begun(job)
    job.keepers[-1].kill()
    job.keepers[-1].wait()
    job.ask(CANCEL_NOW)
    assert (job.look().state, is_there(run)) == (keeping.ALIVE, True)
    assert kill(job) == [run]
    wait_until(lambda: job.look().state == keeping.DEAD, "it lives")
    assert not is_there(run)
    assert kill(job) == []


@pytest.mark.parametrize("spares_keeper", [True, False])
def test_a_keeper_is_spared_and_records_the_end_or_killed_with_its_run(job, spares_keeper):
    keeper, run = begun(job)
    killed = kill(job, spares_keeper=spares_keeper)
    if spares_keeper:
        assert (killed, job.end().signal) == ([run], signal.SIGKILL)
    else:
        assert (sorted(killed), job.keepers[-1].wait()) == (sorted([keeper, run]), -signal.SIGKILL)
        wait_until(lambda: job.look().state == keeping.DEAD, "it lives")


def test_who_only_has_the_file_open_is_no_holder(job):
    _, run = begun(job)
    looker = os.fork()
    if looker == 0:
        os.open(job.folder.path / records.LOCK, os.O_RDONLY)
        (job.folder.path / "open").touch()
        signal.pause()
        os._exit(0)
    try:
        wait_until((job.folder.path / "open").exists, "it is not open")
        assert kill(job) == [run]
        assert is_there(looker)
    finally:
        os.kill(looker, signal.SIGKILL)
        os.waitpid(looker, 0)


def test_the_lock_of_another_job_is_not_taken_for_ones_own(job, tmp_path):
    lock = job.folder.path / records.LOCK
    with KeptJob(tmp_path / "other") as other:
        _, run = begun(other)
        for make in (os.link, os.symlink, lambda _, own: own.touch()):
            make(other.folder.path / records.LOCK, lock)
            assert kill(job) == []
            lock.unlink()
        assert is_there(run)


def test_this_process_does_not_kill_itself(job):
    folder = records.open_folder(job.folder.path)
    lock = records.take_lock(folder)
    assert lock is not None
    assert kill_holders(folder) == []
    os.close(lock)
    os.close(folder)


def test_without_a_folder_or_a_lock_there_is_nobody(job):
    assert kill(job) == []
    job.folder.path.rename(job.folder.path.with_name("gone"))
    assert kill(job) == []
