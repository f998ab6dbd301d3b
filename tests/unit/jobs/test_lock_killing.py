"""What holds the lock of a job is killed, and nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cstool.jobs import keeping, records
from cstool.jobs.job import CANCEL_NOW, EXECUTE
from cstool.jobs.lock_killing import kill_holders
from tests.patience import wait_until
from tests.unit.jobs.keepers import IGNORES, KeptJob, is_there


@pytest.fixture
def job(tmp_path) -> Iterator[KeptJob]:
    found = KeptJob(tmp_path / "job")
    yield found
    found.close()


def kill(job: KeptJob, *, spares_keeper: bool = True) -> list[int]:
    return keeping.kill(job.folder, EXECUTE, 1, spares_keeper=spares_keeper)


def test_a_run_that_does_not_stop_when_its_keeper_is_killed_is_reached_by_its_lock(job):
    keeper = job.start(IGNORES)
    job.wait_for("ready")
    run = job.run_process()
    keeper.kill()
    keeper.wait()
    job.ask(CANCEL_NOW)
    assert job.look().state == keeping.ALIVE
    assert is_there(run)
    assert kill(job) == [run]
    wait_until(lambda: job.look().state == keeping.DEAD, "it lives")
    assert not is_there(run)
    assert kill(job) == []


def test_a_keeper_that_is_there_is_spared_and_records_the_end(job):
    job.start(IGNORES)
    job.wait_for("ready")
    run = job.run_process()
    assert kill(job) == [run]
    assert job.end().signal == signal.SIGKILL


def test_a_keeper_that_hangs_is_killed_with_its_run(job):
    keeper = job.start(IGNORES)
    job.wait_for("ready")
    run = job.run_process()
    assert sorted(kill(job, spares_keeper=False)) == sorted([keeper.pid, run])
    assert keeper.wait() == -signal.SIGKILL
    wait_until(lambda: job.look().state == keeping.DEAD, "it lives")


def test_who_only_has_the_file_open_is_no_holder(job):
    job.start(IGNORES)
    job.wait_for("ready")
    run = job.run_process()
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
    other = KeptJob(tmp_path / "other")
    try:
        other.start(IGNORES)
        other.wait_for("ready")
        (job.folder.path / records.LOCK).unlink(missing_ok=True)
        for link in (os.link, os.symlink):
            link(other.folder.path / records.LOCK, job.folder.path / records.LOCK)
            assert kill(job) == []
            (job.folder.path / records.LOCK).unlink()
        (job.folder.path / records.LOCK).touch()
        assert kill(job) == []
        assert is_there(other.run_process())
    finally:
        with suppress(OSError):
            other.close()


def test_this_process_does_not_kill_itself(job):
    folder = records.open_folder(job.folder.path)
    lock = records.take_lock(folder)
    assert lock is not None
    try:
        assert kill_holders(folder) == []
    finally:
        os.close(lock)
        os.close(folder)


def test_without_a_folder_or_a_lock_there_is_nobody(job):
    assert kill(job) == []
    job.folder.path.rename(job.folder.path.with_name("gone"))
    assert kill(job) == []
