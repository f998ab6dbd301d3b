"""Runs that take turns: each trains a few steps, saves, and makes way for the next, until all are at the last step.

So other load on the machine slows all of them alike. A run that goes on from its own checkpoint has the
bits of an uninterrupted one, so the losses are the same as in straight runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from cstool.foundation.errors import DataError, Interrupted, NonFiniteError
from cstool.foundation.progress import Progress
from cstool.foundation.words import counted
from cstool.model.graphs import SampleForm
from cstool.model.params import Params, SparsityParams
from cstool.model.system import load_system
from cstool.plan.compiler import compile_model
from cstool.training.compare.request import run_params
from cstool.training.machine.data_sets import check_data
from cstool.training.run.result import RunResult
from cstool.training.run.run import run
from cstool.training.run.session import RunOrder

MOST_TURNS = 10
SYSTEM = "cs2"
"""target for which the runs are compiled, as `cstool run` does: weights of any model stream there, unlike on others"""
FEWEST_STEPS = 10
"""of a turn, where there are more turns than one: its first step is cold, and the median leaves it out"""


@dataclass(frozen=True)
class Runner:
    """A run of the race.

    Args:
        label: its name in progress and errors
        groups: of sparse weights; none for a dense run
        sparse_kernels: as `run` has it
    """

    label: str
    groups: tuple[SparsityParams, ...] = ()
    sparse_kernels: str = "auto"


@dataclass(frozen=True)
class Finish:
    """The results of a run of the race; times are measured.

    Args:
        label: of the run
        losses: of every step
        step_seconds: of the steps that count: but for the first of a turn, where there are others
        step_s: their median
        op_shares: for each op the share of its time in the time of a step, lanes averaged, forward and backward
        evaluation: on the data held out, after the last step; None if there was none
        result: of its last turn: memory, bytes, sparsity
        checkpoint: of the last step; None if it was not kept
    """

    label: str
    losses: tuple[float, ...]
    step_seconds: tuple[float, ...]
    step_s: float
    op_shares: dict[str, float]
    evaluation: dict[str, float] | None
    result: RunResult
    checkpoint: Path | None


def race(
    params: Params,
    runners: Sequence[Runner],
    num_steps: int,
    folder: Path,
    progress: Progress,
    lanes: int | None = None,
    *,
    evaluates: bool = True,
    keeps: bool = True,
) -> list[Finish]:
    """Train runs in turns, from the same weights, on the same data.

    Args:
        params: as the file has them; the sparsity of a runner takes the place of theirs
        runners: in the order of their turns; every other round is in the opposite order
        num_steps: of each run
        folder: has a folder for each
        lanes: host threads; None to choose
        evaluates: whether each is evaluated after its last step
        keeps: whether the last checkpoints stay

    Raises:
        NonFiniteError: naming the run
        Interrupted: a signal came
        CstoolError: an error that the user can act on
    """
    ends = turn_ends(num_steps)
    results: dict[str, list[RunResult]] = {runner.label: [] for runner in runners}
    for number, end in enumerate(ends):
        for runner in runners[:: 1 if number % 2 == 0 else -1]:
            is_last = end == num_steps
            name = runner.label.replace(",", "").replace(" ", "_")
            turn = run_params(params, runner.groups, folder / name, end)
            if is_last and not keeps:
                turn = replace(turn, checkpoint=turn.checkpoint.model_copy(update={"steps": None}))
            shown = _Labelled(progress, runner.label if len(ends) == 1 else f"{runner.label}, {number + 1}/{len(ends)}")
            mode = "train_and_eval" if is_last and evaluates else "train"
            found = results[runner.label]
            found.append(_run(runner, turn, mode, lanes, shown))
            for checkpoint in found[-2].checkpoints if len(found) > 1 else ():
                Path(checkpoint).unlink(missing_ok=True)
    return [_finish(runner.label, results[runner.label]) for runner in runners]


def turn_ends(num_steps: int) -> list[int]:
    """Return the last step of each turn."""
    turns = max(1, min(MOST_TURNS, num_steps // FEWEST_STEPS))
    return [num_steps * turn // turns for turn in range(1, turns + 1)]


def _run(runner: Runner, params: Params, mode: str, lanes: int | None, progress: Progress) -> RunResult:
    form = SampleForm.of(check_data(params, mode))
    artifact = compile_model(params, load_system(SYSTEM), form=form)
    try:
        return run(params, artifact, RunOrder(mode, lanes=lanes, sparse_kernels=runner.sparse_kernels), progress)
    except NonFiniteError as error:
        raise NonFiniteError(f"{runner.label}: {error.message}", error.hint) from error
    except Interrupted as error:
        raise Interrupted("the validation was interrupted: there is no verdict") from error


def _finish(label: str, turns: Sequence[RunResult]) -> Finish:
    seconds = [second for turn in turns for second in (turn.step_seconds[1:] or turn.step_seconds)]
    lane_seconds = sum(sum(turn.step_seconds) * turn.lanes for turn in turns)
    shares = {
        op: sum(sum(turn.op_seconds[op].values()) * len(turn.losses) for turn in turns) / lane_seconds
        for op in turns[0].op_seconds
    }
    last = turns[-1]
    evaluation = last.evaluations[-1] if last.evaluations else None
    if evaluation is not None and evaluation["tokens"] == 0:
        raise DataError(
            "trainer.fit.val_dataloader: at least one label must count for a held-out loss, got none in "
            f"{counted(evaluation['samples'], 'sample')}",
            "a label counts where the mask of its token is 1",
        )
    return Finish(
        label=label,
        losses=tuple(loss for turn in turns for loss in turn.losses),
        step_seconds=tuple(seconds),
        step_s=median(seconds),
        op_shares=shares,
        evaluation=evaluation,
        result=last,
        checkpoint=Path(last.checkpoints[-1]) if last.checkpoints else None,
    )


class _Labelled:
    """Tells a progress which run a task is of."""

    def __init__(self, progress: Progress, label: str) -> None:
        self._progress = progress
        self._label = label

    def start(self, task: str, total: int | None) -> None:
        self._progress.start(f"{self._label}: {task}", total)

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:
        self._progress.advance(f"{self._label}: {task}", done, detail, loss=loss)

    def finish(self, task: str) -> None:
        self._progress.finish(f"{self._label}: {task}")
