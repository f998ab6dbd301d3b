"""A run that is stopped or killed goes on from its last checkpoint, with the bits of one that was not."""

import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import Interrupted
from cstool.training.machine.appliance import Appliance
from cstool.training.store import list_checkpoints
from tests.end_to_end.runs import DROPOUT, LONGER, STEPS, gpt_params, latest_bits, run_file
from tests.patience import wait_until

LOOP = {**LONGER, "init__checkpoint": {"steps": 1}}
PROCESS = pytest.mark.takes("a whole run is a process")


@pytest.fixture(scope="module")
def straight(undisturbed) -> str:
    return undisturbed(**LONGER, **DROPOUT)


def start(file: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cstool", "run", "--params", str(file), "--lanes", "2", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_step(folder: Path, step: int) -> None:
    wait_until(lambda: any(entry.step >= step for entry in list_checkpoints(folder)), f"no checkpoint of step {step}")


@PROCESS
@pytest.mark.parametrize(
    "kills",
    [
        {4: "table"},
        pytest.param({1: "table", 3: "python", 5: "table"}, marks=pytest.mark.lab),
        pytest.param({2: "python", 4: "table", 6: "python"}, marks=pytest.mark.lab),
    ],
    ids=str,
)
def test_killed_at_any_moment_by_either_executor_it_ends_with_the_bits_of_the_straight_run(
    tmp_path, data, straight, kills
):
    """Killed after a checkpoint of each of some steps, with the executor of the process."""
    file = gpt_params(tmp_path, data, **LOOP, **DROPOUT)
    for step, executor in kills.items():
        process = start(file, "--executor", executor)
        wait_for_step(tmp_path / "model_dir", step)
        process.kill()
        process.communicate()
    resumed = run_file(file, lanes=1)
    assert 0 < len(resumed.losses) < STEPS
    assert latest_bits(tmp_path / "model_dir") == straight


@PROCESS
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.lab)])
def test_a_signal_finishes_the_step_saves_and_says_how_to_go_on(tmp_path, data, straight, number):
    file = gpt_params(tmp_path, data, **LOOP, **DROPOUT)
    process = start(file)
    wait_for_step(tmp_path / "model_dir", 2)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    last = max(entry.step for entry in list_checkpoints(tmp_path / "model_dir"))
    assert errors == (
        f"interrupted: stopped by {number.name} after step {last}; it is saved in {tmp_path / 'model_dir'}\n"
        "hint: the same command continues from there\n"
    )
    run_file(file)
    assert latest_bits(tmp_path / "model_dir") == straight


@pytest.mark.lab
def test_a_terminal_that_is_closed_ends_it_like_a_signal(tmp_path, data, straight):
    file = gpt_params(tmp_path, data, **LOOP, **DROPOUT)
    process, terminal = pty.fork()
    if not process:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "cstool", "run", "--params", str(file), "--lanes", "2"])

    def has_come_to_a_checkpoint() -> bool:
        # Somebody must read what is shown, or the terminal is full and the run waits.
        with suppress(BlockingIOError):
            os.read(terminal, 65536)
        return any(entry.step >= 2 for entry in list_checkpoints(tmp_path / "model_dir"))

    os.set_blocking(terminal, False)
    wait_until(has_come_to_a_checkpoint, "no checkpoint of step 2")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    last = max(entry.step for entry in list_checkpoints(tmp_path / "model_dir"))
    log = (tmp_path / "model_dir" / "latest_run.log").read_text()
    assert f"stopped by SIGHUP after step {last}; it is saved in {tmp_path / 'model_dir'}\n" in log
    run_file(file)
    assert latest_bits(tmp_path / "model_dir") == straight


@pytest.mark.lab
def test_the_environment_has_no_say(tmp_path, data, straight):
    """Another hash seed, and BLAS told to use many threads."""
    file = gpt_params(tmp_path, data, **LOOP, **DROPOUT)
    environment = {**os.environ, "PYTHONHASHSEED": "77", "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "cstool", "run", "-p", str(file), "--lanes", "3"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert latest_bits(tmp_path / "model_dir") == straight


def test_a_signal_during_an_evaluation_ends_it_between_two_batches_or_saves_the_step(
    tmp_path, data, straight, monkeypatch
):
    evaluate = Appliance.evaluate

    def signalled(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return evaluate(*arguments)

    changes = {**DROPOUT, "init__loop": {"max_steps": STEPS, "eval_frequency": 3}, "init__checkpoint": {"steps": STEPS}}
    file = gpt_params(tmp_path, data, **changes)
    monkeypatch.setattr(Appliance, "evaluate", signalled)
    with pytest.raises(Interrupted) as caught:
        run_file(file, mode="train_and_eval")
    assert caught.value.message == f"stopped by SIGTERM after step 3; it is saved in {tmp_path / 'model_dir'}"
    with pytest.raises(Interrupted) as caught:
        run_file(file, mode="eval")
    assert str(caught.value) == "stopped by SIGTERM during the evaluation after step 3\nhint: --mode eval repeats it"
    monkeypatch.undo()
    run_file(file, mode="train_and_eval")
    assert latest_bits(tmp_path / "model_dir") == straight
