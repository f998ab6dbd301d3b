"""Sparse beside dense, from a params file: the verb behind `cstool validate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cstool.foundation.errors import CstoolError
from cstool.foundation.folders import temporary_folder
from cstool.foundation.progress.screen import OpenScreen, screen_of
from cstool.model.verbs.asked import asked_params, check_lanes

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.model.params import Params
    from cstool.training.compare import Verdict


def validate(
    params: str | Path | Params,
    sparsity: float | None = None,
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    num_steps: int | None = None,
    num_csx: int | None = None,
    max_loss_gap: float = 0.1,
    tolerance: float | None = None,
    sweep: Sequence[float] = (),
    seed: int | None = None,
    lanes: int | None = None,
    model_dir: str | Path | None = None,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> Verdict:
    """Compare sparse training with dense training: numerics, held-out loss, cost of a step.

    Args:
        params: a params file of one trainer, or params that are loaded
        sparsity: share of zeros; None for the share in the params
        overrides: values by dotted key
        num_steps: of each run; None for the steps in the params, at most 100
        num_csx: number of CSX systems
        max_loss_gap: by which the held-out loss of the sparse run may be larger [nats]
        tolerance: relative difference that sparse and dense kernels may come to; None for 9.5e-7 per step
        sweep: further shares of zeros that are measured; the verdict is not of them
        seed: of all random numbers
        lanes: host threads; None for one per core. Losses do not depend on it
        model_dir: new folder in which the runs stay; None for a temporary one
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        Its `holds` is the verdict; the rest has the reasons

    Raises:
        NonFiniteError: a run came to NaN or infinity
        CstoolError: any other error that the user can act on
    """
    check_lanes(lanes)
    asked = asked_params(params, overrides, num_csx=num_csx, seed=seed)
    kept = None if model_dir is None else Path(model_dir)
    return validate_logged(
        asked,
        screen_of(progress),
        None,
        sparsity=sparsity,
        num_steps=num_steps,
        max_loss_gap=max_loss_gap,
        tolerance=tolerance,
        sweep=tuple(sweep),
        lanes=lanes,
        model_dir=kept,
    )


def validate_logged(params: Params, open_screen: OpenScreen, level: str | None, **asked: Any) -> Verdict:
    """Compare as `validate` does, shown on a screen.

    Args:
        params: checked params of one trainer
        open_screen: opens it
        level: least level of log lines on the screen, which also goes to the folder of the runs; None for no log
        asked: as of `cstool.training.compare.Request`
    """
    from cstool.training.compare import Request
    from cstool.training.compare import validate as validate_params
    from cstool.training.verbs.run_log import run_log

    request = Request(**asked)
    with ExitStack() as stack:
        screen = stack.enter_context(open_screen())
        if level is not None:
            if screen.handler is not None:
                screen.handler.setLevel(level)
            folder = request.model_dir or stack.enter_context(temporary_folder("cstool-validate-"))
            log_level = "DEBUG" if level == "DEBUG" else "INFO"
            stack.enter_context(run_log(folder, log_level, screen.handler, params.resolved()))
        return validate_params(params, request, screen.progress)


def draw_verdict(verdict: Verdict, paths: Sequence[Path], theme: str) -> None:
    """Draw a verdict into files, .svg or .png, on a "light" or "dark" page.

    Raises:
        CstoolError: a file cannot be written
    """
    if not paths:
        return
    from cstool.training.compare.drawing import draw_comparison

    for path in paths:
        try:
            draw_comparison(verdict, path, theme)
        except OSError as error:
            raise CstoolError(f"{path}: cannot be written: {error.strerror}") from error
