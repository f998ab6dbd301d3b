"""An appliance whose supervisor is killed: no job is lost, none runs twice, all end as if nothing had happened."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cstool.errors import CstoolError
from cstool.jobs.appliance import appliance_status, drain_appliance, start_appliance, stop_appliance
from cstool.jobs.guard import GUARD_LOCK
from cstool.jobs.holders import holder_of
from cstool.jobs.job import CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED
from tests.appliances import NEEDS, WRITES, TestAppliance, small_order
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.patience import wait_until
from tests.storm_appliance import storm

STOPS_WELL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
open(sys.argv[1], "a").write("ready\\n")
while True: time.sleep(0.01)
"""
CRASHES_ONCE = """
import os, sys
file = open(sys.argv[1], "a+")
file.seek(0)
before = file.read()
file.write("begins\\n"); file.flush()
if not before: os.kill(os.getpid(), 9)
"""
TAKES_MEMORY = "found = bytearray(400_000_000); import time; time.sleep(60)"


@pytest.fixture
def appliance(tmp_path) -> Iterator[TestAppliance]:
    with TestAppliance(tmp_path / "root") as found:
        yield found


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_killed_at_random_moments_each_job_runs_once(tmp_path, appliance):
    chance = random.Random(3)
    appliance.start()
    jobs, written = [], []
    for number in range(14):
        file, seconds = tmp_path / f"file-{number}", chance.uniform(0, 0.3)
        order = small_order(tmp_path / f"model-{number}", WRITES, str(file), str(seconds))
        if number % 3 == 0:
            compiles = (str(tmp_path / f"compile-{number % 2}"), "0.1")
            order = replace(order, compile_words=compiles, compile_key=f"key-{number % 2}")
        jobs.append(appliance.jobs.submit(replace(order, priority=chance.choice(["p1", "p2", "p3"]))))
        written.append(file)
    crashing = small_order(tmp_path / "model-crashes", CRASHES_ONCE, str(tmp_path / "crashes"), max_restarts=1)
    crashing_job = appliance.jobs.submit(crashing)
    for _ in range(4):
        time.sleep(chance.uniform(0, 0.4))
        appliance.kill_supervisor()
    assert [(job.phase, job.reason) for job in appliance.wait([*jobs, crashing_job])] == [(SUCCEEDED, "")] * 15
    for file in written:
        assert [line.split()[0] for line in lines(file)] == ["begins", "ends"]
    for number in (0, 1):
        assert [line.split()[0] for line in lines(tmp_path / f"compile-{number}")] == ["begins", "ends"]
    assert lines(tmp_path / "crashes") == ["begins", "begins"]
    assert appliance.kinds(crashing_job) == ["submitted", "started", "crashed", "started", "succeeded"]
    assert appliance.faults() == []


def test_a_real_run_goes_on_through_kills_with_the_bits_of_a_straight_one(tmp_path, appliance):
    data = write_text(tmp_path / "text", 150)
    changes = {"init__loop": {"max_steps": 8}, "init__checkpoint": {"steps": 2}}
    straight = digest(Path(run_file(gpt_params(tmp_path / "straight", data, **changes)).checkpoints[-1]))
    file = gpt_params(tmp_path / "job", data, **changes)
    order = small_order(
        tmp_path / "job" / "model_dir",
        "",
        program=(sys.executable, "-m", "cstool"),
        params=file.read_text(),
        run_words=("run",),
        compile_words=("compile",),
        compile_key="key",
        environment=dict(os.environ),
        working_dir=Path.cwd(),
        needs=replace(NEEDS, memory_bytes=4 * 2**30, disk_bytes=2**30),
    )
    appliance.start()
    job = appliance.jobs.submit(order)
    appliance.wait_for_phase(job, RUNNING, SUCCEEDED)
    for _ in range(2):
        appliance.kill_supervisor()
    (job,) = appliance.wait([job])
    assert (job.phase, job.reason, job.exit_code) == (SUCCEEDED, "", 0)
    assert latest_bits(tmp_path / "job" / "model_dir") == straight
    assert job.peak_bytes > 2**24
    assert appliance.kinds(job) == ["submitted", "compile_started", "compiled", "started", "succeeded"]
    assert appliance.faults() == []


def test_stopped_and_started_again_it_finds_what_ran_and_what_ended_meanwhile(tmp_path, appliance):
    appliance.start()
    job = appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / "file"), "0.3"))
    appliance.wait_for_phase(job, RUNNING)
    assert stop_appliance(appliance.root)
    assert not stop_appliance(appliance.root)
    assert appliance_status(appliance.root).supervisor is None
    wait_until(lambda: len(lines(tmp_path / "file")) == 2, "the job does not go on")
    assert appliance.queue.job(job.name).phase == RUNNING
    later = appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / "later"), "0"))
    appliance.start()
    appliance.wait([job, later])
    assert [line.split()[0] for line in lines(tmp_path / "file")] == ["begins", "ends"]
    kinds = [event.kind for event in appliance.queue.events("")]
    assert kinds == ["supervisor_started", "supervisor_stopped", "supervisor_started"]
    assert appliance.faults() == []


def test_started_twice_it_says_who_runs(appliance):
    appliance.start()
    status = appliance_status(appliance.root)
    assert status.supervisor is not None
    assert status.supervisor_pid == appliance.supervisor()
    with pytest.raises(CstoolError) as error:
        start_appliance(appliance.root, appliance.capacity)
    assert str(error.value) == (
        f"{appliance.root.folder}: an appliance has one supervisor, one runs already: {status.supervisor}\n"
        "hint: `cstool appliance status` says how it is, `cstool appliance stop` ends it"
    )
    done = subprocess.run(
        [sys.executable, "-m", "cstool.jobs.supervising", str(appliance.root.folder)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, f"error: {error.value}\n")
    assert done.stdout == ""
    assert appliance.starts() == 1


def test_a_supervisor_whose_guard_was_killed_goes_on_and_can_be_stopped(tmp_path, appliance):
    guard = appliance.start()
    os.kill(guard, signal.SIGKILL)
    job = appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / "file"), "0"))
    appliance.wait([job])
    assert stop_appliance(appliance.root)
    assert appliance.supervisor() is None


def test_stopped_with_its_jobs_all_are_cancelled_first(tmp_path, appliance):
    appliance.start()
    jobs = [appliance.jobs.submit(small_order(tmp_path / "m", STOPS_WELL, str(tmp_path / f"{n}"))) for n in range(3)]
    wait_until(lambda: all(lines(tmp_path / str(n)) for n in range(2)), "they do not start")
    assert stop_appliance(appliance.root, cancel_jobs=True)
    found = [appliance.queue.job(job.name) for job in jobs]
    assert [(job.phase, job.exit_code) for job in found] == [(CANCELLED, 130)] * 2 + [(CANCELLED, None)]
    assert appliance.faults() == []


def test_jobs_that_run_cannot_be_cancelled_where_nobody_supervises(tmp_path, appliance):
    appliance.start()
    job = appliance.jobs.submit(small_order(tmp_path / "m", STOPS_WELL, str(tmp_path / "file")))
    appliance.wait_for_phase(job, RUNNING)
    stop_appliance(appliance.root)
    with pytest.raises(CstoolError) as error:
        stop_appliance(appliance.root, cancel_jobs=True)
    assert str(error.value) == (
        f"{appliance.root.folder}: a supervisor must run to end {job.name}, none does\n"
        "hint: `cstool appliance start` starts one"
    )


def test_drained_it_lets_run_what_runs(tmp_path, appliance):
    appliance.start()
    first = appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / "1"), "0.2"))
    appliance.wait_for_phase(first, RUNNING)
    assert not drain_appliance(appliance.root)
    second = appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / "2"), "0"))
    assert appliance_status(appliance.root).drained
    assert drain_appliance(appliance.root, wait_s=None)
    assert [appliance.queue.job(job.name).phase for job in (first, second)] == [SUCCEEDED, QUEUED]
    drain_appliance(appliance.root, drained=False)
    appliance.wait([second])
    kinds = [event.kind for event in appliance.queue.events("")]
    assert kinds == ["supervisor_started", "drained", "undrained"]
    assert appliance.faults() == []


def test_a_budget_that_is_too_small_fails_its_job_alone(tmp_path, appliance):
    appliance.start()
    greedy = small_order(tmp_path / "m", TAKES_MEMORY, needs=replace(NEEDS, memory_bytes=100_000_000))
    jobs = [appliance.jobs.submit(greedy)]
    jobs += [appliance.jobs.submit(small_order(tmp_path / "m", WRITES, str(tmp_path / "2"), "0.5"))]
    greedy_job, other = appliance.wait(jobs)
    assert (greedy_job.phase, other.phase) == (FAILED, SUCCEEDED)
    assert greedy_job.reason.startswith("memory: must stay within 100MB, it took ")


def test_the_capacity_holds_and_the_status_says_so(tmp_path, appliance):
    appliance.start()
    jobs = [
        appliance.jobs.submit(small_order(tmp_path / "m", STOPS_WELL, str(tmp_path / f"{n}"), compile_key=""))
        for n in range(len(appliance.capacity.cpus) + 1)
    ]
    wait_until(lambda: all(lines(tmp_path / f"{n}") for n in range(len(jobs) - 1)), "they do not start")
    status = appliance_status(appliance.root)
    count = len(jobs) - 1
    assert status.used.cpus == appliance.capacity.cpus
    assert (status.used.memory_bytes, status.used.systems) == (count * NEEDS.memory_bytes, count)
    assert (status.phases[RUNNING], status.phases[QUEUED], status.backend) == (count, 1, "local")
    assert status.capacity == appliance.capacity


def test_a_job_that_never_fits_is_refused_at_once_and_leaves_nothing(tmp_path, appliance):
    appliance.start()
    with pytest.raises(CstoolError, match="cores"):
        appliance.jobs.submit(small_order(tmp_path / "m", "", needs=replace(NEEDS, cores=99)))
    assert appliance.jobs.jobs() == []
    assert [*appliance.root.jobs.iterdir()] == []


def test_a_lock_that_is_removed_ends_its_supervisor_and_the_guard(appliance):
    appliance.start()
    number = appliance.supervisor()
    appliance.root.supervisor_lock.unlink()
    with suppress(ProcessLookupError):
        wait_until(lambda: holder_of(appliance.root.folder / GUARD_LOCK) is None, "the guard does not end")
    assert number is not None
    wait_until(lambda: not Path(f"/proc/{number}").exists(), "the supervisor does not end")
    assert "must be there as long as a supervisor runs, it is gone" in appliance.log()


def test_a_small_storm(tmp_path):
    said = storm(12, 3, 4, tmp_path, seed=1, seconds_per_job=0.3)
    assert re.match(r"12 jobs of 3 clients, 4 kills, [1-5] supervisors: each job began once and ended well in ", said)
