"""Several runs at once on two cores: what they take is divided, and none gets or changes what is another's."""

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cstool.jobs import keeping
from cstool.jobs.job import EXECUTE, FAILED, SUCCEEDED, Capacity, Job
from cstool.params import load_all_params
from cstool.verbs.job_order import JobRequest, make_order
from cstool.verbs.jobs import submit_job
from cstool.verbs.run import RunRequest
from tests.appliances import CAPACITY, TestAppliance
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.patience import wait_until

PATIENCE_S = 180.0
SEEDS = range(1, 5)
REQUEST = JobRequest(
    run=RunRequest(lanes=1), typed=("cstool", "job", "submit"), program=(sys.executable, "-m", "cstool")
)
TOO_SMALL = "20MiB"
"""less than the interpreter and its libraries take"""


@pytest.mark.skipif(len(CAPACITY.cpus) < 2, reason="two cores are to be divided")
def test_four_runs_on_two_cores_keep_to_their_parts_and_one_that_asks_for_too_little_fails_alone(tmp_path):
    data = write_text(tmp_path / "text", 60)
    changes = {"init__loop": {"max_steps": 4}, "init__model__dropout_rate": 0.1}
    alone = [
        digest(Path(run_file(gpt_params(tmp_path / f"alone-{n}", data, init__seed=n, **changes)).checkpoints[-1]))
        for n in SEEDS
    ]
    assert len(set(alone)) == len(SEEDS)
    files = [gpt_params(tmp_path / f"job-{n}", data, init__seed=n, **changes) for n in SEEDS]
    small_file = gpt_params(tmp_path / "small", data, **changes)
    needs = make_order(load_all_params(files[0]), REQUEST).needs
    capacity = replace(CAPACITY, memory_bytes=4 * needs.memory_bytes)
    with TestAppliance(tmp_path / "root", capacity) as appliance:
        appliance.start()

        def submit(file: Path, request: JobRequest) -> Job:
            return submit_job(appliance.root.folder, None, load_all_params(file), request, print).job

        jobs = [submit(file, REQUEST) for file in files]
        small = submit(small_file, replace(REQUEST, memory=TOO_SMALL))
        seen: dict[str, set[int]] = {}
        most = 0

        def ended() -> bool:
            nonlocal most
            now = executing(appliance.root.folder)
            check_shares(now, capacity)
            most = max(most, len(now))
            for name, cores in now.items():
                seen.setdefault(name, set()).update(cores)
            return all(appliance.queue.job(job.name).has_ended for job in (*jobs, small))

        wait_until(ended, f"they do not end: {appliance.log()[-3000:]}", PATIENCE_S)
        found = [appliance.queue.job(job.name) for job in jobs]
        assert [(job.phase, job.reason, job.restarts) for job in found] == [(SUCCEEDED, "", 0)] * 4
        # Each was seen, with no cores but its own; two at a time were seen, or the rest says little.
        assert {job.name: set(job.cpus) for job in found} == {job.name: seen[job.name] for job in found}
        assert most == 2
        failed = appliance.queue.job(small.name)
        assert failed.phase == FAILED
        assert failed.reason.startswith("memory: must stay within 21MB, it took "), failed.reason
        assert [latest_bits(tmp_path / f"job-{n}" / "model_dir") for n in SEEDS] == alone
        assert not list((tmp_path / "small").glob("model_dir/*.mdl"))
        check_peaks(appliance, found)
        assert appliance.faults() == []


def executing(root: Path) -> dict[str, set[int]]:
    """Return the cores that threads of `cstool run` may use, by job, of all that execute at one moment."""
    found: dict[int, tuple[str, set[int]]] = {}
    for number in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        if name := executed_by(number, root):
            found[number] = name, cores_of(number)
    # Those that are still there once all were looked at were there together.
    cores: dict[str, set[int]] = {}
    for number, (name, theirs) in found.items():
        if executed_by(number, root) == name:
            cores.setdefault(name, set()).update(theirs)
    return cores


def executed_by(number: int, root: Path) -> str:
    """Return the name of the job whose run a process is; "" for other processes, and for one that has ended."""
    with suppress(OSError):
        words = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace").split("\0")
        if "run" in words and "--params" in words:
            params = Path(words[words.index("--params") + 1])
            if params.is_relative_to(root):
                return params.parent.name
    return ""


def cores_of(number: int) -> set[int]:
    """Return the cores that some thread of a process may use."""
    cores: set[int] = set()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{number}/task"):
            with suppress(OSError):
                cores |= os.sched_getaffinity(int(thread))
    return cores


def check_shares(now: dict[str, set[int]], capacity: Capacity) -> None:
    """Check that there are no more lanes than cores, and that no core is in two parts."""
    taken = [core for cores in now.values() for core in cores]
    assert len(now) <= len(capacity.cpus), now
    assert len(taken) == len(set(taken)), now
    assert set(taken) <= set(capacity.cpus), now


def check_peaks(appliance: TestAppliance, jobs: list[Job]) -> None:
    """Check that each took memory within its part, and those that executed at the same time within the budget."""
    peaks = {}
    for job in jobs:
        end = keeping.look(appliance.jobs.folder(job.name), EXECUTE, job.attempt).end
        assert end is not None
        assert 2**24 < end.peak_bytes <= job.peak_bytes <= job.needs.memory_bytes
        peaks[job.name] = job.peak_bytes
    running: set[str] = set()
    for event in appliance.queue.events():
        if event.job in peaks and event.kind == "started":
            running.add(event.job)
        elif event.kind == "succeeded":
            running.discard(event.job)
        assert sum(peaks[name] for name in running) <= appliance.capacity.memory_bytes
