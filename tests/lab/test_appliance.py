"""An appliance that is killed, on a full disk, shared by several users: no job is lost, none runs twice."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cstool.appliance.queue.appliance import appliance_status, drain_appliance, stop_appliance
from cstool.appliance.queue.attempt import Attempt
from cstool.appliance.queue.client import open_jobs
from cstool.appliance.queue.guard import GUARD_LOCK
from cstool.appliance.queue.holders import holder_of
from cstool.appliance.queue.job import CANCELLED, EXECUTE, QUEUED, RUNNING, SUCCEEDED, Job, JobOrder
from cstool.appliance.queue.records import this_boot_id
from cstool.appliance.queue.root import make_shared_root
from cstool.appliance.queue.supervisor import Supervisor
from cstool.appliance.verbs.job_order import JobRequest, make_order
from cstool.appliance.verbs.jobs import show_job, submit_job
from cstool.foundation.errors import CstoolError
from cstool.model.params import load_all_params
from cstool.training.store import list_checkpoints
from cstool.training.verbs.run import RunRequest
from tests.appliances import CAPACITY, NEEDS, WRITES, TestAppliance, small_order
from tests.end_to_end.disk import Disk
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.job_contract import STREAMED, JobContract, run_of
from tests.patience import wait_until
from tests.storm_appliance import storm
from tests.unit.appliance.queue.keepers import STOPS_WELL
from tests.unit.appliance.queue.queues import NOBODY, as_user, refusal

NOTES = STOPS_WELL.replace('print("ready"', 'open(sys.argv[1], "a").write("ready\\n"); print("ready"')
USERS = 100
"""the group of a shared appliance, `users` of Debian"""


class LocalOffer:
    """A local appliance."""

    def __init__(self, appliance: TestAppliance) -> None:
        self.jobs, self._root = appliance.jobs, appliance.root

    @contextmanager
    def held(self) -> Iterator[None]:
        drain_appliance(self._root)
        try:
            yield
        finally:
            drain_appliance(self._root, drained=False)


class TestLocal(JobContract):
    """The contract of back ends, with a real supervisor."""

    @pytest.fixture(scope="class")
    @classmethod
    def offer(cls, tmp_path_factory) -> Iterator[LocalOffer]:
        with TestAppliance(tmp_path_factory.mktemp("root") / "appliance") as appliance:
            appliance.start()
            yield LocalOffer(appliance)


@pytest.fixture
def appliance(tmp_path) -> Iterator[TestAppliance]:
    with TestAppliance(tmp_path / "root") as found:
        found.start()
        yield found


@pytest.fixture
def writes(tmp_path, appliance) -> Any:

    def submit(name: str, seconds: float, **changes: Any) -> Job:
        order = small_order(tmp_path / f"model-{name}", WRITES, str(tmp_path / name), str(seconds), **changes)
        return appliance.jobs.submit(order)

    return submit


def words(file: Path) -> list[str]:
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def real_order(file: Path, **changes: Any) -> JobOrder:
    usual = {"program": (sys.executable, "-m", "cstool"), "params": file.read_text(), "run_words": ("run", *STREAMED)}
    needs = replace(NEEDS, memory_bytes=4 * 2**30, disk_bytes=2**30)
    usual |= {"environment": dict(os.environ), "working_dir": Path.cwd(), "needs": needs}
    return small_order(file.parent / "model_dir", "", **{**usual, **changes})


def test_a_small_storm(tmp_path):
    said = storm(8, 2, 4, tmp_path, seed=1, seconds_per_job=0.3)
    assert re.match(r"8 jobs of 2 clients, 4 kills, [1-5] supervisors: each job began once and ended well in ", said)


def test_stopped_and_started_again_it_finds_what_ran_and_what_ended_meanwhile(tmp_path, appliance, writes):
    job = writes("file", 0.3)
    appliance.wait_for_phase(job, RUNNING)
    assert stop_appliance(appliance.root)
    assert not stop_appliance(appliance.root)
    assert appliance_status(appliance.root).supervisor is None
    wait_until(lambda: len(words(tmp_path / "file")) == 2, "the job does not go on")
    assert appliance.queue.job(job.name).phase == RUNNING
    assert refusal(lambda: stop_appliance(appliance.root, cancel_jobs=True)) == (
        f"{appliance.root.folder}: a supervisor must run to end {job.name}, none does\n"
        "hint: `cstool appliance start` starts one"
    )
    later = writes("later", 0)
    appliance.start()
    appliance.wait([job, later])
    assert words(tmp_path / "file") == ["begins", "ends"]
    kinds = [event.kind for event in appliance.queue.events("")]
    assert kinds == ["supervisor_started", "supervisor_stopped", "supervisor_started"]
    assert appliance.faults() == []


def test_a_supervisor_whose_guard_was_killed_goes_on_is_the_only_one_and_can_be_stopped(appliance, writes):
    guard = holder_of(appliance.root.folder / GUARD_LOCK)
    os.kill(guard.pid, signal.SIGKILL)
    appliance.wait([writes("file", 0)])
    status = appliance_status(appliance.root)
    assert status.supervisor_pid == appliance.supervisor()
    command = [sys.executable, "-m", "cstool.appliance.queue.supervising", str(appliance.root.folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    said = f"{appliance.root.folder}: an appliance has one supervisor, one runs already: {status.supervisor}"
    hint = "`cstool appliance status` says how it is, `cstool appliance stop` ends it"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said}\nhint: {hint}\n")
    assert appliance.starts() == 1
    assert stop_appliance(appliance.root)
    assert appliance.supervisor() is None


def test_stopped_with_its_jobs_all_are_cancelled_first(tmp_path, appliance):
    jobs = [appliance.jobs.submit(small_order(tmp_path / "m", NOTES, str(tmp_path / f"{n}"))) for n in range(3)]
    wait_until(lambda: all(words(tmp_path / str(n)) for n in range(2)), "they do not start")
    assert stop_appliance(appliance.root, cancel_jobs=True)
    found = [appliance.queue.job(job.name) for job in jobs]
    assert [(job.phase, job.exit_code) for job in found] == [(CANCELLED, 130)] * 2 + [(CANCELLED, None)]
    assert appliance.faults() == []


def test_drained_it_lets_run_what_runs(appliance, writes):
    first = writes("first", 0.2)
    appliance.wait_for_phase(first, RUNNING)
    assert not drain_appliance(appliance.root)
    second = writes("second", 0)
    assert appliance_status(appliance.root).drained
    assert drain_appliance(appliance.root, wait_s=None)
    assert [appliance.queue.job(job.name).phase for job in (first, second)] == [SUCCEEDED, QUEUED]
    drain_appliance(appliance.root, drained=False)
    appliance.wait([second])
    assert [event.kind for event in appliance.queue.events("")] == ["supervisor_started", "drained", "undrained"]
    assert appliance.faults() == []


def test_a_lock_that_is_removed_ends_its_supervisor_and_the_guard(appliance):
    number = appliance.supervisor()
    assert number is not None
    appliance.root.supervisor_lock.unlink()
    with suppress(ProcessLookupError):
        wait_until(lambda: holder_of(appliance.root.folder / GUARD_LOCK) is None, "the guard does not end")
    wait_until(lambda: not Path(f"/proc/{number}").exists(), "the supervisor does not end")
    assert "must be there as long as a supervisor runs, it is gone" in appliance.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_on_a_full_disk_nothing_is_lost_and_all_goes_on_when_there_is_room(tmp_path):
    disk = Disk(tmp_path / "disk", 4 * 2**20)
    try:
        with TestAppliance(disk.place / "root") as appliance:
            appliance.start()
            orders = [small_order(tmp_path / "m", WRITES, str(tmp_path / f"{n}"), "0.3") for n in range(5)]
            jobs = [appliance.jobs.submit(order) for order in orders[:4]]
            appliance.wait_for_phase(jobs[0], RUNNING)
            disk.fill()
            with pytest.raises(CstoolError):
                appliance.jobs.submit(orders[4])
            for _ in range(2):
                appliance.kill_supervisor()
            time.sleep(1.5)  # so that supervisor and keepers have to do with the full disk
            assert appliance.queue.job(jobs[-1].name).phase == QUEUED
            disk.grow(64 * 2**20)
            assert [(job.phase, job.reason) for job in appliance.wait(jobs)] == [(SUCCEEDED, "")] * 4
            assert [words(tmp_path / f"{n}") for n in range(5)] == [["begins", "ends"]] * 4 + [[]]
            assert appliance.faults() == []
    finally:
        subprocess.run(["umount", "--lazy", str(disk.place)], check=True)


def test_preempted_and_without_its_keeper_a_run_ends_with_the_bits_of_a_straight_one(tmp_path):
    data = write_text(tmp_path / "text", 150)
    changes = {"init__loop": {"max_steps": 16}, "init__checkpoint": {"steps": 1}, "init__model__dropout_rate": 0.1}
    straight = digest(Path(run_file(gpt_params(tmp_path / "straight", data, **changes)).checkpoints[-1]))
    order = real_order(gpt_params(tmp_path / "job", data, **changes), priority="p3", max_restarts=1)
    with TestAppliance(tmp_path / "root", replace(CAPACITY, cpus=CAPACITY.cpus[:1])) as appliance:
        appliance.start()
        low = appliance.jobs.submit(order)

        def reach(step: int) -> None:
            wait_until(lambda: any(e.step >= step for e in list_checkpoints(order.model_dir)), f"not at {step}")

        for number, step in enumerate((2, 6)):
            reach(step)
            high = small_order(tmp_path / "m", WRITES, str(tmp_path / f"high-{number}"), "0.1")
            (done,) = appliance.wait([appliance.jobs.submit(replace(high, priority="p1", preempts=True))])
            assert done.phase == SUCCEEDED
            assert appliance.queue.job(low.name).phase in (QUEUED, RUNNING)
        reach(9)
        # The keeper has the folder of the job among its words, its run does not.
        words_of_it = str(appliance.root.job(low.name).path)
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if words_of_it in (process / "cmdline").read_text().split("\0"):
                    os.kill(int(process.name), signal.SIGKILL)
        (done,) = appliance.wait([low])
        assert (done.phase, done.reason, done.attempt, done.restarts) == (SUCCEEDED, "", 4, 1)
        stops = ["started", "stop_asked", "preempted"]
        assert appliance.kinds(low) == ["submitted", *stops * 2, "started", "crashed", "started", "succeeded"]
        assert latest_bits(order.model_dir) == straight
        assert appliance.faults() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_shared_appliance_runs_each_job_as_who_submitted_it(monkeypatch):
    place = Path(os.path.realpath(tempfile.mkdtemp(prefix="appliance.")))
    place.chmod(0o755)
    root = make_shared_root(place / "root", "users")
    says = "echo $(id -u) $(id -g) $HOME; touch $1/written"
    order = small_order(place / "model_dir", "", program=("/bin/sh", "-c", says, "sh"))
    (place / "theirs").mkdir()
    os.chown(place / "theirs", NOBODY, NOBODY)
    # Who is in the group here is not for a test to change.
    monkeypatch.setattr("cstool.appliance.queue.job_folder.os.getgrouplist", lambda name, group: [group, USERS])

    def submit() -> Job:
        with open_jobs(root.folder) as jobs:
            return jobs.submit(replace(order, run_words=(str(place / "theirs"),)))

    with TestAppliance(root.folder) as appliance:
        theirs = as_user(NOBODY, [USERS], submit)
        assert isinstance(theirs, Job), theirs
        mine = appliance.jobs.submit(replace(order, run_words=(str(place),)))
        waiting = appliance.jobs.submit(small_order(place / "m", "", program=("/bin/sh", "-c", "sleep 60", "sh")))
        appliance.queue.put("capacity", asdict(CAPACITY))
        supervisor = Supervisor(root, appliance.queue, boot_id=this_boot_id())

        def turn_until_ended(*jobs: Job) -> list[str]:
            def ended() -> bool:
                supervisor.turn()
                return all(appliance.queue.job(job.name).has_ended for job in jobs)

            wait_until(ended, "jobs do not end")
            return [appliance.queue.job(job.name).phase for job in jobs]

        assert turn_until_ended(theirs, mine) == [SUCCEEDED] * 2
        for job, user in ((theirs, NOBODY), (mine, 0)):
            assert appliance.jobs.folder(job.name).log("out").read_text().split()[0] == str(user)
        assert (place / "theirs" / "written").stat().st_uid == NOBODY
        # Another's folder may not be entered, and the job may be looked at all the same.
        assert as_user(NOBODY, [USERS], lambda: sorted(show_job(root.folder, mine.name).logs)) == ["err", "out"]
        said = as_user(NOBODY, [USERS], lambda: open_jobs(root.folder).cancel(waiting.name))
        assert said == f"CstoolError: job {waiting.name}: only root may cancel it, this is nobody"
        appliance.jobs.cancel(waiting.name, at_once=True)
        assert turn_until_ended(waiting) == [CANCELLED]
        supervisor.forget_children()
    shutil.rmtree(place)


@pytest.mark.skipif(len(CAPACITY.cpus) < 2, reason="two cores are to be divided")
def test_three_runs_on_two_cores_keep_to_their_parts_and_one_that_asks_for_too_little_fails_alone(tmp_path):
    data, seeds = write_text(tmp_path / "text", 60), range(1, 4)
    changes = {"init__loop": {"max_steps": 4}, "init__model__dropout_rate": 0.1}
    alone = [gpt_params(tmp_path / f"alone-{seed}", data, init__seed=seed, **changes) for seed in seeds]
    bits = [digest(Path(run_file(file).checkpoints[-1])) for file in alone]
    assert len(set(bits)) == len(seeds)
    request = JobRequest(
        run=RunRequest(lanes=1, execution_mode="weight_streaming"), program=(sys.executable, "-m", "cstool")
    )
    files = [gpt_params(tmp_path / f"job-{seed}", data, init__seed=seed, **changes) for seed in seeds]
    capacity = replace(CAPACITY, memory_bytes=3 * make_order(load_all_params(files[0]), request).needs.memory_bytes)
    with TestAppliance(tmp_path / "root", capacity) as appliance:
        appliance.start()
        # The last is less than the interpreter and its libraries take.
        asked = [*((file, request) for file in files)]
        asked += [(gpt_params(tmp_path / "small", data, **changes), replace(request, memory="20MiB"))]
        root = appliance.root.folder
        *jobs, small = (submit_job(root, None, load_all_params(file), each, print).job for file, each in asked)
        seen: dict[str, set[int]] = {job.name: set() for job in jobs}
        most = 0

        def ended() -> bool:
            nonlocal most
            now = appliance.queue.jobs(phases=(RUNNING,))
            most = max(most, len(now))
            for job in now:
                with suppress(AssertionError, OSError, KeyError):  # it has no process yet, or none any more
                    process = run_of(appliance.jobs, job)
                    threads = map(int, os.listdir(f"/proc/{process}/task"))
                    seen[job.name].update(*map(os.sched_getaffinity, threads))
            return all(appliance.queue.job(job.name).has_ended for job in (*jobs, small))

        wait_until(ended, f"they do not end: {appliance.log()[-3000:]}", 180.0)
        found = [appliance.queue.job(job.name) for job in jobs]
        assert [(job.phase, job.reason, job.restarts) for job in found] == [(SUCCEEDED, "", 0)] * 3
        # Each was seen on no cores but its own, and those of two are never the same, see `faults`; two ran at a time.
        assert {job.name: set(job.cpus) for job in found} == seen
        assert most == 2
        assert appliance.queue.job(small.name).reason.startswith("memory: must stay within 21MB, it took ")
        assert [latest_bits(tmp_path / f"job-{seed}" / "model_dir") for seed in seeds] == bits
        assert not list((tmp_path / "small").glob("model_dir/*.mdl"))
        for job in found:
            end = Attempt(appliance.jobs.folder(job.name), EXECUTE, job.attempt).look().end
            assert end is not None
            assert 2**24 < end.peak_bytes <= job.peak_bytes <= job.needs.memory_bytes
        assert appliance.faults() == []
