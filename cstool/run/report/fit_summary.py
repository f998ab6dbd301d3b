"""What a training loop is going to do, in the vendor's words, before it begins."""

from __future__ import annotations

from cstool.params import Params

WIDTH = 75


def fit_summary(params: Params, start: int, last: int, eval_interval: int | None) -> list[str]:
    """Return the lines.

    Args:
        params: say when checkpoints and log lines are due
        start: step that the loop goes on from
        last: step that it ends with
        eval_interval: steps between evaluations; None for none on the way

    Source: the lines are those of the vendor's trainer (trainer/callbacks/run_schedule.py); ours are that about
    validation, which is no loop of its own here, and that about no checkpoints.
    """
    steps, every = last - start, params.checkpoint.steps
    lines = [
        "=" * WIDTH,
        "Trainer Fit Summary",
        "-" * WIDTH,
        "Trainer will run 1 train loop.",
        "Train steps per train loop:",
        f"* 1 loop of {_plural(steps, 'step')}",
        f"for a total of {_plural(steps, 'train step')}.",
    ]
    if eval_interval is not None and eval_interval < last:
        lines.append(f"Validation will run every {_each(eval_interval)}, and after the last step.")
    if every is None:
        lines.append("No checkpoints will be taken: trainer.init.checkpoint.steps says how often.")
    else:
        count = last // every - start // every + (last % every > 0)
        also = " and on the last step," if last % every else ""
        lines.append(
            f"Checkpoints will be taken every {_each(every)},{also} for a total of {_plural(count, 'checkpoint')}."
        )
    lines.append(f"Progress will be logged every {_each(params.logging.log_steps)}.")
    return [*lines, "=" * WIDTH]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _each(count: int) -> str:
    return "step" if count == 1 else f"{count} steps"
