"""An appliance on a full disk, one that several users share, and jobs that make room for others."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cstool.errors import CstoolError
from cstool.jobs.capacity import write_capacity
from cstool.jobs.client import open_jobs
from cstool.jobs.job import CANCELLED, QUEUED, RUNNING, SUCCEEDED, Job
from cstool.jobs.keeping import this_boot_id
from cstool.jobs.root import make_shared_root
from cstool.jobs.supervisor import Supervisor
from cstool.store import list_checkpoints
from cstool.verbs.jobs import show_job
from tests.appliances import CAPACITY, NEEDS, WRITES, TestAppliance, small_order
from tests.end_to_end.disk import Disk
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.patience import wait_until
from tests.unit.jobs.queues import NOBODY, as_user

ONE_CORE = replace(CAPACITY, cpus=CAPACITY.cpus[:1])
USERS = 100
"""the group of a shared appliance, `users` of Debian"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_on_a_full_disk_nothing_is_lost_and_all_goes_on_when_there_is_room(tmp_path):
    disk = Disk(tmp_path / "disk", 4 * 2**20)
    try:
        with TestAppliance(disk.place / "root") as appliance:
            appliance.start()
            jobs = [
                appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / f"{n}"), "0.3"))
                for n in range(4)
            ]
            appliance.wait_for_phase(jobs[0], RUNNING)
            disk.fill()
            with pytest.raises(CstoolError):
                appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / "no"), "0"))
            for _ in range(2):
                appliance.kill_supervisor()
            time.sleep(1.5)  # so that supervisor and keepers have to do with the full disk
            assert appliance.queue.job(jobs[-1].name).phase == QUEUED
            disk.grow(64 * 2**20)
            found = appliance.wait(jobs)
            assert [(job.phase, job.reason) for job in found] == [(SUCCEEDED, "")] * 4
            for number in range(4):
                text = (tmp_path / f"{number}").read_text()
                assert [line.split()[0] for line in text.splitlines()] == ["begins", "ends"]
            assert appliance.faults() == []
    finally:
        os.system(f"umount -l {disk.place}")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that other users reach."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="appliance.")))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_shared_appliance_runs_each_job_as_who_submitted_it(open_place, monkeypatch):
    root = make_shared_root(open_place / "root", "users")
    says = "echo $(id -u) $(id -g) $HOME; touch $1/written"
    order = small_order(open_place / "model_dir", "", program=("/bin/sh", "-c", says, "sh"))
    (open_place / "theirs").mkdir()
    os.chown(open_place / "theirs", NOBODY, NOBODY)
    # Who is in the group here is not for a test to change.
    monkeypatch.setattr("cstool.jobs.stages.os.getgrouplist", lambda name, group: [group, USERS])

    def submit() -> Job:
        with open_jobs(root.folder) as jobs:
            return jobs.submit(replace(order, run_words=(str(open_place / "theirs"),)))

    with TestAppliance(root.folder) as appliance:
        theirs = as_user(NOBODY, [USERS], submit)
        assert isinstance(theirs, Job), theirs
        mine = appliance.jobs.submit(replace(order, run_words=(str(open_place),)))
        waiting = appliance.jobs.submit(small_order(open_place / "m", "", program=("/bin/sh", "-c", "sleep 60", "sh")))
        write_capacity(appliance.queue, CAPACITY)
        supervisor = Supervisor(root, appliance.queue, boot_id=this_boot_id())

        def turn_until(*jobs: Job) -> list[Job]:
            def ended() -> bool:
                supervisor.turn()
                return all(appliance.queue.job(job.name).has_ended for job in jobs)

            wait_until(ended, "jobs do not end")
            return [appliance.queue.job(job.name) for job in jobs]

        found = turn_until(theirs, mine)
        assert [(job.phase, job.reason) for job in found] == [(SUCCEEDED, "")] * 2
        for job, user in ((theirs, NOBODY), (mine, 0)):
            assert appliance.jobs.folder(job.name).log("out").read_text().split()[0] == str(user)
        assert (open_place / "theirs" / "written").stat().st_uid == NOBODY

        def cancel() -> Job:
            with open_jobs(root.folder) as jobs:
                return jobs.cancel(waiting.name)

        def look() -> list[str]:
            return sorted(show_job(root.folder, mine.name).logs)

        # Another's folder may not be entered, and the job may be looked at all the same.
        assert as_user(NOBODY, [USERS], look) == ["err", "out"]

        said = as_user(NOBODY, [USERS], cancel)
        assert said == f"CstoolError: job {waiting.name}: only root may cancel it, this is nobody"
        appliance.jobs.cancel(waiting.name, at_once=True)
        assert [job.phase for job in turn_until(waiting)] == [CANCELLED]
        supervisor.forget_children()


def test_preempted_twice_a_run_ends_with_the_bits_of_a_straight_one(tmp_path):
    data = write_text(tmp_path / "text", 150)
    changes = {"init__loop": {"max_steps": 16}, "init__checkpoint": {"steps": 1}, "init__model__dropout_rate": 0.1}
    straight = digest(Path(run_file(gpt_params(tmp_path / "straight", data, **changes)).checkpoints[-1]))
    file = gpt_params(tmp_path / "job", data, **changes)
    model_dir = tmp_path / "job" / "model_dir"
    low_order = small_order(
        model_dir,
        "",
        program=(sys.executable, "-m", "cstool"),
        params=file.read_text(),
        run_words=("run",),
        environment=dict(os.environ),
        working_dir=Path.cwd(),
        needs=replace(NEEDS, memory_bytes=4 * 2**30, disk_bytes=2**30),
        priority="p3",
    )
    with TestAppliance(tmp_path / "root", ONE_CORE) as appliance:
        appliance.start()
        low = appliance.jobs.submit(low_order)
        for number, step in enumerate((2, 6)):
            wait_until(lambda: any(e.step >= step for e in list_checkpoints(model_dir)), f"not at {step}")  # noqa: B023
            high_order = small_order(tmp_path / "m", WRITES, str(tmp_path / f"high-{number}"), "0.1")
            high = appliance.jobs.submit(replace(high_order, priority="p1", preempts=True))
            (done,) = appliance.wait([high])
            assert done.phase == SUCCEEDED
            assert appliance.queue.job(low.name).phase in (QUEUED, RUNNING)
        (done,) = appliance.wait([low])
        assert (done.phase, done.reason, done.attempt, done.restarts) == (SUCCEEDED, "", 3, 0)
        kinds = ["submitted", *["started", "stop_asked", "preempted"] * 2, "started", "succeeded"]
        assert appliance.kinds(low) == kinds
        assert latest_bits(model_dir) == straight
        assert appliance.faults() == []
