"""Turns, and which steps count; that losses are those of straight runs is tested end to end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import DataError, Interrupted
from cstool.foundation.progress import Silent
from cstool.training.compare import race as module
from cstool.training.compare.race import FEWEST_STEPS, MOST_TURNS, Runner, race, turn_ends
from cstool.training.run.result import RunResult
from tests.contract.refusal import refusal
from tests.models import decoder


@given(st.integers(1, 10_000))
def test_turns_are_about_equal_and_end_at_the_last_step(num_steps):
    ends = turn_ends(num_steps)
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert (ends[-1], sum(lengths)) == (num_steps, num_steps)
    assert max(lengths) - min(lengths) <= 1
    assert len(ends) <= MOST_TURNS
    assert len(ends) == 1 or min(lengths) >= FEWEST_STEPS


class Params:
    """Stands in for params of a run: which, and up to which step."""

    def __init__(self, folder: Path, last_step: int) -> None:
        self.model_dir, self.last_step, self.checkpoint = folder, last_step, None


@pytest.fixture(autouse=True)
def _stand_in_params(monkeypatch) -> None:
    monkeypatch.setattr(module, "run_params", lambda params, groups, folder, last: Params(folder, last))


@pytest.fixture
def turns(monkeypatch):
    """Stand in for runs; the turns that were taken. Each step takes its number in seconds."""
    taken: list[tuple[str, int, str]] = []

    def run(runner: Runner, params: Params, mode: str, lanes: int, progress: object) -> RunResult:
        before = [last for label, last, _ in taken if label == runner.label]
        taken.append((runner.label, params.last_step, mode))
        seconds = [float(step) for step in range(max(before, default=0) + 1, params.last_step + 1)]
        checkpoint = params.model_dir / f"{params.last_step}.mdl"
        checkpoint.parent.mkdir(exist_ok=True)
        checkpoint.touch()
        return RunResult(
            *("train", "x", 1),
            losses=[-second for second in seconds],
            step_seconds=seconds,
            lanes=2,
            op_seconds={"op": {"forward": sum(seconds) / len(seconds), "backward": 0.0}},
            checkpoints=[str(checkpoint)],
        )

    monkeypatch.setattr(module, "_run", run)
    return taken


def test_runs_take_turns_in_alternating_order_and_only_the_last_checkpoint_stays(turns, tmp_path):
    found, _ = race(None, [Runner("a"), Runner("b")], 30, tmp_path, progress=Silent())
    assert turns == [
        *(("a", 10, "train"), ("b", 10, "train")),
        *(("b", 20, "train"), ("a", 20, "train")),
        *(("a", 30, "train_and_eval"), ("b", 30, "train_and_eval")),
    ]
    assert [*(tmp_path / "a").iterdir()] == [found.checkpoint] == [tmp_path / "a" / "30.mdl"]


def test_the_first_step_of_a_turn_counts_for_its_loss_alone_unless_it_is_the_only_one(turns, tmp_path):
    (found,) = race(None, [Runner("a")], 20, tmp_path, evaluates=False, progress=Silent())
    assert found.losses == tuple(-float(step) for step in range(1, 21))
    assert found.step_seconds == tuple(float(step) for step in range(1, 21) if step not in (1, 11))
    assert found.step_s == 11.0
    # Two lanes, of which one is in the op all the time.
    assert found.op_shares == {"op": pytest.approx(0.5)}
    (found,) = race(None, [Runner("b")], 1, tmp_path, progress=Silent())
    assert found.step_s == 1.0


def test_without_a_label_that_counts_there_is_no_verdict(monkeypatch, tmp_path):
    evaluation = {"loss": math.nan, "tokens": 0, "samples": 40}
    result = RunResult(*("train", "x", 1), evaluations=[evaluation], step_seconds=[1.0], checkpoints=["1.mdl"])
    monkeypatch.setattr(module, "_run", lambda *_: result)
    rule = "trainer.fit.val_dataloader: at least one label must count for a held-out loss, got none in 40 samples"
    with refusal(DataError, rule, "a label counts where the mask of its token is 1"):
        race(None, [Runner("a")], 1, tmp_path, progress=Silent())


def test_an_interruption_leaves_no_verdict(monkeypatch, tmp_path):
    def run(*_: object, **__: object) -> None:
        raise Interrupted("stopped by SIGINT after step 3; it is saved", "the same command continues")

    monkeypatch.setattr(module, "check_data", lambda *_: decoder())
    monkeypatch.setattr(module, "compile_model", lambda *_, **__: None)
    monkeypatch.setattr(module, "run", run)
    with refusal(Interrupted, "the validation was interrupted: there is no verdict"):
        race(None, [Runner("a")], 3, tmp_path, progress=Silent())
