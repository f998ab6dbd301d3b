"""A run that a keeper keeps: preempted, then without its keeper, then to its end, with the bits of a straight run."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cstool.jobs import keeping
from cstool.jobs.job import COMPILE, PREEMPT
from cstool.store import list_checkpoints
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.patience import wait_until
from tests.unit.jobs.keepers import KeptJob

STEPS = 16
CHANGES = {"init__loop": {"max_steps": STEPS}, "init__checkpoint": {"steps": 1}, "init__model__dropout_rate": 0.1}


@pytest.fixture
def job(tmp_path) -> Iterator[KeptJob]:
    made = KeptJob(tmp_path / "wsjob-real")
    yield made
    made.close()


def test_preempted_and_without_its_keeper_it_ends_with_the_bits_of_a_straight_run(tmp_path, job):
    data = write_text(tmp_path / "text", 150)
    straight = digest(Path(run_file(gpt_params(tmp_path / "straight", data, **CHANGES)).checkpoints[-1]))
    file = gpt_params(tmp_path / "kept", data, **CHANGES)
    model_dir = tmp_path / "kept" / "model_dir"
    job.model_dir, order = model_dir, {"environment": dict(os.environ)}
    command = [sys.executable, "-m", "cstool", "run", "--params", str(file), "--lanes", "1"]
    core = min(os.sched_getaffinity(0))

    def start_and_reach(step: int, attempt: int) -> None:
        job.start(command, attempt=attempt, cpus=[core], order=order, memory_bytes=4 * 2**30)
        wait_until(lambda: any(entry.step >= step for entry in list_checkpoints(model_dir)), f"not at step {step}")

    start_and_reach(2, attempt=1)
    job.ask(PREEMPT)
    end = job.end()
    assert (end.exit_code, end.why, end.asked) == (130, "", PREEMPT)
    assert end.peak_bytes > 20 * 2**20
    assert re.search(r"^interrupted: stopped by SIGTERM after step \d+; it is saved in ", job.text("err"), re.MULTILINE)

    start_and_reach(6, attempt=2)
    job.keepers[-1].kill()
    wait_until(lambda: job.look(2).state == keeping.DEAD, "the run does not stop")
    saved = [entry.step for entry in list_checkpoints(model_dir)]
    assert 6 <= max(saved) < STEPS
    assert latest_bits(model_dir) != straight

    job.start(command, attempt=3, cpus=[core], order=order, memory_bytes=4 * 2**30)
    assert job.end(3).exit_code == 0
    assert latest_bits(model_dir) == straight


def test_a_run_with_too_little_memory_fails_with_that_reason(tmp_path, job):
    file = gpt_params(tmp_path / "kept", write_text(tmp_path / "text", 150), **CHANGES)
    command = [sys.executable, "-m", "cstool", "compile", "--params", str(file)]
    job.start(command, stage=COMPILE, order={"environment": dict(os.environ)}, memory_bytes=20 * 2**20)
    end = job.end(stage=COMPILE)
    assert (end.exit_code, end.why) == (None, keeping.MEMORY)
