"""What every back end of an appliance does, as tests: a module with a fixture `offer` makes a class of its own of it.

    class TestLocal(JobContract): ...

Jobs are real runs of a small GPT, but for a few that only matter for how they end.
"""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from cstool.appliance.queue.client import Jobs
from cstool.appliance.queue.following import exit_code_of
from cstool.appliance.queue.job import CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED, Job, JobOrder, Needs
from cstool.appliance.verbs.job_order import VARIABLES
from cstool.foundation.errors import CstoolError
from cstool.foundation.words import size_text
from tests.end_to_end.ranks import committed
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.patience import wait_until
from tests.unit.appliance.queue.queues import an_order

STEPS = 20
STREAMED = ("--execution_mode", "weight_streaming")
"""spares a compile the search for a pipeline"""
CHANGES: dict[str, Any] = {
    "init__loop": {"max_steps": STEPS},
    "init__checkpoint": {"steps": STEPS},
    "init__memoryx": {"store": "file"},
    "init__model__dropout_rate": 0.1,
}
NEEDS = Needs(cores=1, memory_bytes=700 * 2**20, disk_bytes=2**30, systems=1)
STRAIGHT = ["submitted", "compile_started", "compiled", "started", "succeeded"]
PATIENCE_S = 180.0
DIES = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
TAKES = "import time; x = bytearray(300 * 2**20); time.sleep(60)"


class Offer(Protocol):
    """An appliance with a back end, for these tests."""

    jobs: Jobs

    def held(self) -> AbstractContextManager[None]:
        """Within the context no job starts."""


def real_order(folder: Path, data: Path, **changes: Any) -> JobOrder:
    params = {**CHANGES, **{key: value for key, value in changes.items() if "__" in key}}
    file = gpt_params(folder, data, **params)
    order = an_order(
        program=(sys.executable, "-m", "cstool"),
        run_words=("run", *STREAMED),
        compile_words=("compile", *STREAMED),
        params=file.read_text(),
        params_file=str(file),
        working_dir=folder,
        environment={name: os.environ[name] for name in VARIABLES if name in os.environ},
        model_dir=folder / "model_dir",
        compile_dir=folder / "model_dir" / "cached_compile",
        compile_key=str(folder),
        max_steps=STEPS,
        needs=NEEDS,
        labels={},
    )
    return replace(order, **{key: value for key, value in changes.items() if "__" not in key})


def program_order(folder: Path, data: Path, script: str, **changes: Any) -> JobOrder:
    """Return the order of a job that is a small program, and compiles nothing."""
    program = (sys.executable, "-I", "-S", "-c", script)
    return real_order(folder, data, program=program, run_words=(), compile_words=(), compile_key="", **changes)


def run_of(jobs: Jobs, job: Job) -> int:
    """Return the process of a job that runs: the one that reads its params, and executes them."""
    params = str(jobs.folder(job.name).params_file).encode()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"run" in words and params in words:
                return int(process.name)
    raise AssertionError("the job has no process")


class JobContract:
    """The tests. `offer` is a fixture of the module, for all of them."""

    @pytest.fixture(scope="class")
    @classmethod
    def text(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return write_text(tmp_path_factory.mktemp("text") / "train", 60)

    @pytest.fixture(scope="class")
    @classmethod
    def straight(cls, tmp_path_factory: pytest.TempPathFactory, text: Path) -> str:
        file = gpt_params(tmp_path_factory.mktemp("straight"), text, **CHANGES)
        result = run_file(file, execution_mode="weight_streaming")
        return digest(Path(result.checkpoints[-1]))

    @pytest.fixture
    def make(self, tmp_path: Path, text: Path) -> Callable[..., JobOrder]:
        return lambda **changes: real_order(tmp_path, text, **changes)

    def kinds(self, jobs: Jobs, job: Job) -> list[str]:
        return [event.kind for event in jobs.events(job.name)]

    def ended(self, jobs: Jobs, job: Job) -> Job:
        [found] = jobs.wait([job.name], PATIENCE_S)
        assert found.has_ended, (found, [event.text for event in jobs.events(job.name)])
        return found

    def wait_for_commit(self, jobs: Jobs, job: Job, step: int) -> None:
        """Wait until a job has committed a step."""
        wait_until(
            lambda: committed(job.model_dir) >= step or jobs.queue.job(job.name).has_ended,
            f"no commit of step {step}",
            patience_s=PATIENCE_S,
        )
        found = jobs.job(job.name)
        assert found.phase == RUNNING, (found, jobs.events(job.name))

    def test_a_job_from_its_submission_to_its_end(self, offer, make, straight):
        jobs: Jobs = offer.jobs
        order = make(labels={"team": "a", "try": ""}, note="the first one", priority="p1")
        file = Path(order.params_file)
        job = jobs.submit(order)
        file.unlink()  # the job has its own copy
        assert (job.phase, job.priority, job.note, job.labels) == (QUEUED, "p1", "the first one", order.labels)
        assert job.name in [found.name for found in jobs.jobs(active=True)]
        job = self.ended(jobs, job)
        assert (job.phase, exit_code_of(job), job.exit_code, job.reason) == (SUCCEEDED, 0, 0, "")
        assert job.submitted_at <= job.started_at <= job.ended_at
        assert job.peak_bytes > 2**20
        assert len(job.cpus) >= 1
        assert self.kinds(jobs, job) == STRAIGHT
        [started] = [event.data for event in jobs.events(job.name) if event.kind == "started"]
        expected = {"attempt": 1, "cpus": [*job.cpus], "memory_bytes": NEEDS.memory_bytes, "systems": 1}
        assert {**started, **expected} == started
        assert latest_bits(job.model_dir) == straight
        logged = "".join(jobs.folder(job.name).log(stream).read_text() for stream in ("out", "err"))
        assert "Training completed successfully!" in logged
        assert jobs.job(job.name[:12]) == job
        assert jobs.jobs(labels={"team": "a"}) == [job]
        assert job.name not in [found.name for found in jobs.jobs(active=True)]
        assert jobs.label(job.name, {"try": None, "kept": "yes"}).labels == {"team": "a", "kept": "yes"}
        assert self.kinds(jobs, job) == [*STRAIGHT, "labelled"]
        with pytest.raises(CstoolError) as error:
            jobs.cancel(job.name)
        assert error.value.message.startswith(f"job {job.name}: ")

    def test_a_job_that_fails_keeps_its_reason(self, offer, tmp_path, text):
        order = real_order(tmp_path, text, fit__train_dataloader__data_dir=str(tmp_path / "nowhere"), max_restarts=3)
        job = self.ended(offer.jobs, offer.jobs.submit(order))
        assert (job.phase, job.exit_code, exit_code_of(job), job.restarts) == (FAILED, 2, 2, 0)
        assert str(tmp_path / "nowhere") in job.reason
        assert "error: " + job.reason in offer.jobs.folder(job.name).log("err").read_text()

    def test_a_compile_that_fails(self, offer, make):
        job = self.ended(offer.jobs, offer.jobs.submit(make(compile_words=("compile", "--system", "cs9"))))
        assert (job.phase, job.stage, exit_code_of(job), job.started_at) == (FAILED, "compile", 2, None)
        assert "cs9" in job.reason
        assert self.kinds(offer.jobs, job) == ["submitted", "compile_started", "failed"]

    def test_what_crashed_goes_on_to_the_same_bits(self, offer, make, straight):
        jobs: Jobs = offer.jobs
        job = jobs.submit(make(max_restarts=1))
        self.wait_for_commit(jobs, job, 2)
        os.kill(run_of(jobs, job), signal.SIGKILL)
        job = self.ended(jobs, job)
        assert (job.phase, job.restarts, job.attempt) == (SUCCEEDED, 1, 2)
        assert self.kinds(jobs, job) == [*STRAIGHT[:4], "crashed", "started", "succeeded"]
        assert latest_bits(job.model_dir) == straight

    @pytest.mark.parametrize(
        ("script", "memory_bytes", "restarts", "reason"),
        [
            (DIES, NEEDS.memory_bytes, 1, "crashed: it died of SIGKILL, after 1 restart"),
            (TAKES, 100 * 2**20, 0, f"memory: must stay within {size_text(100 * 2**20)}, it took "),
        ],
    )
    def test_what_dies_fails_alone(self, offer, tmp_path, text, script, memory_bytes, restarts, reason):
        needs = replace(NEEDS, memory_bytes=memory_bytes)
        order = program_order(tmp_path, text, script, max_restarts=1, needs=needs)
        job = self.ended(offer.jobs, offer.jobs.submit(order))
        assert (job.phase, job.restarts, exit_code_of(job)) == (FAILED, restarts, 1)
        assert job.reason.startswith(reason), job.reason
        assert self.kinds(offer.jobs, job) == ["submitted", "started", *["crashed", "started"] * restarts, "failed"]

    def test_cancel_of_a_job_that_waits(self, offer, make):
        jobs: Jobs = offer.jobs
        with offer.held():
            job = jobs.submit(make())
            assert jobs.position(job.name) == 1
            [waits] = jobs.wait([job.name], 0.01)
            assert waits.phase == QUEUED
            assert jobs.cancel(job.name).phase == CANCELLED
        assert (exit_code_of(self.ended(jobs, job)), self.kinds(jobs, job)) == (130, ["submitted", "cancelled"])
        assert not job.model_dir.exists()

    def test_cancel_of_a_job_that_runs_finishes_the_step_and_saves(self, offer, make, straight):
        jobs: Jobs = offer.jobs
        job = jobs.submit(make())
        self.wait_for_commit(jobs, job, 1)
        assert jobs.cancel(job.name).asked == "cancel"
        job = self.ended(jobs, job)
        assert (job.phase, exit_code_of(job)) == (CANCELLED, 130)
        assert self.kinds(jobs, job) == [*STRAIGHT[:4], "stop_asked", "cancelled"]
        at = committed(job.model_dir)
        assert f"stopped by SIGTERM after step {at}" in jobs.folder(job.name).log("err").read_text()
        # The same again goes on from there.
        job = self.ended(jobs, jobs.submit(make()))
        assert (job.phase, latest_bits(job.model_dir)) == (SUCCEEDED, straight)

    def test_cancel_at_once(self, offer, tmp_path, text):
        jobs: Jobs = offer.jobs
        script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        script += "print('begun', flush=True)\nwhile True: time.sleep(1)\n"
        job = jobs.submit(program_order(tmp_path, text, script))
        log = jobs.folder(job.name).log("out")
        wait_until(lambda: log.exists() and "begun" in log.read_text(), "it does not begin", patience_s=PATIENCE_S)
        wait_until(lambda: jobs.job(job.name).phase == RUNNING, "the job does not run")
        jobs.cancel(job.name, at_once=True)
        assert self.ended(jobs, job).phase == CANCELLED
        assert self.kinds(jobs, job) == ["submitted", "started", "stop_asked", "cancelled"]

    def test_a_time_limit(self, offer, make):
        # A second is enough to begin, or is not: in both cases it ends for that reason.
        order = make(needs=replace(NEEDS, limit_s=1.0), init__loop={"max_steps": 100000}, max_restarts=2)
        job = self.ended(offer.jobs, offer.jobs.submit(order))
        assert (job.phase, job.restarts) == (FAILED, 0)
        assert job.reason.startswith("time: its limit of ")

    def test_a_job_file_that_was_edited(self, offer, tmp_path, text):
        jobs: Jobs = offer.jobs
        with offer.held():
            job = jobs.submit(program_order(tmp_path, text, "print('runs')"))
            with jobs.folder(job.name).job_file.open("a") as file:
                file.write(" ")
        job = self.ended(jobs, job)
        assert job.phase == FAILED
        assert "job.json" in job.reason
        assert not jobs.folder(job.name).log("out").exists()
