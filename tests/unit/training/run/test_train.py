"""The training loop: which steps, and what happens between them."""

import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import DataError, Interrupted
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.data_sets import DataSet
from cstool.training.machine.state import Position
from cstool.training.run.report.summary import fit_summary, result_of
from cstool.training.run.session import Session
from cstool.training.run.stopping import StopRequest
from cstool.training.run.train import train
from tests.contract.refusal import refusal
from tests.end_to_end.refusals import rows
from tests.unit.training.run.sessions import Digits, params_of, restored, session

TRAIN_LINE = (
    r"\| Train Device=CSX, Step=(\d+), Loss=\d+\.\d{5}, Rate=\S+ samples/sec, GlobalRate=\S+ samples/sec, "
    r"LoopTimeRemaining=\d+:\d\d:\d\d, TimeRemaining>\d+:\d\d:\d\d, InputWait=\d+\.\d%"
)


@pytest.fixture(autouse=True)
def _log_everything(caplog):
    caplog.set_level("INFO", "cstool")


def go(found: Session, data: Digits, evaluate_now: Callable[[], float] | None) -> None:
    with StopRequest() as stop:
        train(found, DataSet("train", "", found.params.dataloaders("train")[0], data), evaluate_now, stop)


def trained(
    folder: Path,
    *,
    samples: int = 20,
    position: Position | None = None,
    evaluate_now: Callable[[], float] | None = None,
    **init: Any,
) -> tuple[Session, Digits]:
    with session(folder, **init) as found:
        found.position = position or Position()
        data = Digits(samples)
        go(found, data, evaluate_now)
        return found, data


def checkpoints(found: Session) -> list[str]:
    return [Path(path).stem for path in found.checkpoints]


LAST = {
    7: [{"num_steps": 4}, {"num_steps": 4, "max_steps": 5}],
    4: [{"max_steps": 4}],
    10: [{"num_epochs": 2}],
    6: [{"num_epochs": 3, "steps_per_epoch": 2}],
    5: [{}],
}


@pytest.mark.parametrize(("last", "loop"), [(last, loop) for last, loops in LAST.items() for loop in loops])
def test_a_run_at_step_3_with_batches_of_5_to_an_epoch_ends_at(tmp_path, last, loop):
    found, _ = trained(tmp_path, position=Position(3, 3), loop=loop)
    assert found.position == Position(last, last, 4)
    assert (found.training.first_step, len(found.training.losses)) == (3, last - 3)


def test_a_run_that_is_over_does_nothing(tmp_path, caplog):
    found, data = trained(tmp_path, position=Position(5, 5), loop={"max_steps": 5})
    assert (found.training.losses, data.seen) == ([], [])
    rule = "Nothing to train: the run is at step 5, and its last step is 5. num_steps counts from where it is."
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", rule)]


def test_batches_go_on_where_the_run_was_those_of_another_size_at_the_same_sample(tmp_path, caplog):
    _, data = trained(tmp_path, position=Position(3, 4), loop={"num_steps": 2})
    assert data.seen == [[16, 17, 18, 19], [0, 1, 2, 3]]
    _, data = trained(tmp_path, position=Position(3, 6, 2), loop={"num_steps": 1})
    assert data.seen == [[12, 13, 14, 15]]
    assert "batch_size was 2 so far and is 4 now: going on with batch 3." in caplog.messages


def test_the_learning_rate_of_the_first_step_is_that_of_step_0(tmp_path, monkeypatch):
    rates = []
    train_step = Appliance.train_step

    def noted(self: Appliance, batch: Any, step: int, learning_rate: float) -> Any:
        rates.append((step, learning_rate))
        return train_step(self, batch, step, learning_rate)

    monkeypatch.setattr(Appliance, "train_step", noted)
    schedule = {"LinearLR": {"initial_learning_rate": 0.0, "end_learning_rate": 0.4, "total_iters": 4}}
    trained(tmp_path, loop={"max_steps": 3}, schedulers=[schedule])
    assert rates == [(1, 0.0), (2, pytest.approx(0.1)), (3, pytest.approx(0.2))]


@pytest.mark.parametrize(
    ("checkpoint", "start", "steps"),
    [
        ({"steps": 2}, 0, [2, 4, 5]),
        ({"steps": 9}, 0, [5]),
        ({}, 0, []),
        ({"save_initial_checkpoint": True}, 0, [0]),
        ({"steps": 5, "save_initial_checkpoint": True}, 0, [0, 5]),
        # A run that goes on writes no initial one.
        ({"save_initial_checkpoint": True}, 3, []),
    ],
)
def test_checkpoints_are_written_after_the_steps_that_were_asked_for(tmp_path, checkpoint, start, steps):
    found, _ = trained(tmp_path, position=Position(start, start), loop={"max_steps": 5}, checkpoint=checkpoint)
    assert checkpoints(found) == [f"checkpoint_{step}" for step in steps]


@pytest.mark.parametrize(
    ("loop", "start", "evaluated"),
    [
        ({"max_steps": 6, "eval_frequency": 2}, 0, [2, 4]),
        ({"max_steps": 6, "eval_frequency": 0.5}, 0, [3]),
        ({"max_steps": 6}, 0, []),
        ({"max_steps": 6, "eval_frequency": 0}, 0, []),
        # A share is of the whole run, wherever this part of it begins.
        ({"max_steps": 10, "eval_frequency": 0.25}, 4, [6, 9]),
    ],
)
def test_evaluation_comes_between_steps_and_not_after_the_last(tmp_path, loop, start, evaluated):
    steps = []
    with session(tmp_path, loop=loop) as found:
        found.position = Position(start, start, 4)

        def evaluate_now() -> float:
            steps.append(found.position.step)
            return 0.0

        go(found, Digits(), evaluate_now)
    assert steps == evaluated


def test_the_log_says_where_the_loop_begins_and_ends_with_a_line_every_log_steps(tmp_path, caplog):
    found, _ = trained(tmp_path, position=Position(3, 3), loop={"max_steps": 8}, logging={"log_steps": 3})
    assert caplog.messages[5:11] == [
        "* 1 loop of 5 steps",
        "for a total of 5 train steps.",
        "No checkpoints will be taken: trainer.init.checkpoint.steps says how often.",
        "Progress will be logged every 3 steps.",
        "=" * 75,
        "Starting train loop 1 of 1, from global step 4 to 8 (5 steps)",
    ]
    lines = [re.fullmatch(TRAIN_LINE, message) for message in caplog.messages]
    assert [int(line[1]) for line in lines if line] == [4, 6, 8]
    assert caplog.messages[-2] == "Training completed successfully!"
    assert re.fullmatch(r"Processed 20 training sample\(s\) in \d+\.\d{9} seconds\.", caplog.messages[-1])
    steps = [("advance", "Training", done) for done in range(1, 6)]
    assert found.progress.events == [("start", "Training", 5), *steps, ("finish", "Training")]  # type: ignore[attr-defined]
    result = result_of(found)
    assert (result.samples, result.samples_per_s) == (20, 20 / result.seconds)
    assert result.tokens_per_s == result.samples_per_s, "one of digits is one token"


def with_a_signal(found: Session) -> None:
    """Train, with a signal that comes during the first step."""
    step = found.appliance.train_step

    def signalled(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return step(*arguments)

    found.appliance.train_step = signalled  # type: ignore[method-assign]
    go(found, Digits(), None)


@pytest.mark.parametrize(
    ("loop", "checkpoint", "resumes", "more"),
    [
        ({"max_steps": 5}, {}, True, ""),
        ({"max_steps": 5}, {"steps": 1}, True, ""),
        ({"num_steps": 5}, {}, True, " with --num_steps 4"),
        ({"max_steps": 5}, {}, False, " with --checkpoint_path FILE"),
        ({"num_steps": 5}, {}, False, " with --checkpoint_path FILE --num_steps 4"),
    ],
)
def test_a_signal_lets_the_step_finish_saves_it_once_and_says_how_to_go_on(tmp_path, loop, checkpoint, resumes, more):
    with session(tmp_path, loop=loop, checkpoint=checkpoint) as found:
        found.resumes, folder = resumes, found.params.model_dir
        rule = f"stopped by SIGTERM after step 1; it is saved in {folder}"
        more = more.replace("FILE", str(folder / "checkpoint_1.mdl"))
        with refusal(Interrupted, rule, f"the same command{more} continues from there"):
            with_a_signal(found)
        assert checkpoints(found) == ["checkpoint_1"]
        assert len(found.training.losses) == 1


def test_a_signal_during_the_last_step_changes_nothing(tmp_path):
    with session(tmp_path, loop={"max_steps": 1}) as found:
        with_a_signal(found)
        assert (found.position.step, checkpoints(found)) == (1, [])


def test_an_interrupted_run_goes_on_with_the_losses_of_a_straight_one(tmp_path):
    def losses(name: str, train_it: Callable[[Session], None]) -> list[float]:
        with session(tmp_path / name, loop={"max_steps": 4}) as found:
            restored(found, None, "all", strict=True)
            with suppress(Interrupted):
                train_it(found)
        return list(found.training.losses)

    def straight(found: Session) -> None:
        go(found, Digits(), None)

    parts = [losses("a", with_a_signal), losses("a", straight)]
    assert list(map(len, parts)) == [1, 3]
    assert sum(parts, []) == losses("b", straight)


class Damaged(Digits):
    """A data set whose third batch cannot be read."""

    def read(self, indices: Any, out: Any, epoch: int = 0) -> None:
        super().read(indices, out)
        if len(self.seen) == 3:
            raise DataError("digits: must be readable, got noise")


def test_an_error_of_the_data_set_ends_the_loop_and_its_progress(tmp_path):
    with session(tmp_path, loop={"max_steps": 5}) as found:
        with pytest.raises(DataError, match=r"^digits: must be readable, got noise$"):
            go(found, Damaged(), None)
        assert found.position == Position(2, 2, 4)
        assert found.progress.events[-1] == ("finish", "Training")  # type: ignore[attr-defined]


def test_starvation_is_warned_of_once(tmp_path, caplog, monkeypatch):
    with session(tmp_path, loop={"max_steps": 5}) as found:
        monkeypatch.setattr("cstool.training.run.train.STARVED_SHARE", -1.0)
        go(found, Digits(), None)
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert re.fullmatch(r"Input starvation detected: \d+% of the time is spent waiting for the data set\.", warning)


# What a training loop says before it begins, in the vendor's words.


SUMMARIES = rows("""\
{checkpoint: {steps: 200}, logging: {log_steps: 50}} 0 200 0 => * 1 loop of 200 steps
    for a total of 200 train steps.
    Checkpoints will be taken every 200 steps, for a total of 1 checkpoint.
    Progress will be logged every 50 steps.
{checkpoint: {steps: 3}} 4 8 2 => * 1 loop of 4 steps
    for a total of 4 train steps.
    Validation will run every 2 steps, and after the last step.
    Checkpoints will be taken every 3 steps, and on the last step, for a total of 2 checkpoints.
    Progress will be logged every step.
{checkpoint: {steps: 1}} 7 8 8 => * 1 loop of 1 step
    for a total of 1 train step.
    Checkpoints will be taken every step, for a total of 1 checkpoint.
    Progress will be logged every step.
""")


@pytest.mark.parametrize(("given", "lines"), SUMMARIES)
def test_it_says_how_long_and_how_often(tmp_path, given, lines):
    init, *numbers = given.rsplit(" ", 3)
    start, last, interval = map(int, numbers)
    rule = "=" * 75
    head = [rule, "Trainer Fit Summary", "-" * 75, "Trainer will run 1 train loop.", "Train steps per train loop:"]
    found = fit_summary(params_of(tmp_path, **yaml.safe_load(init)), start, last, interval or None)
    assert found == [*head, *lines.split("\n"), rule]
