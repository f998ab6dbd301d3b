"""`cstool estimate optimize`: which cluster, batch and sparsity a job needs at least."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.options import JsonOption, PlotOption, ThemeOption, option
from cstool.foundation.terminal.render import print_json
from cstool.model.commands.completion import complete_system
from cstool.model.commands.options import (
    ExecutionModeOption,
    ExpertImbalanceOption,
    MemoryXSizeOption,
    ModelParamsOption,
    SetOption,
    SoftwareOption,
    SoftwareWorkersOption,
)
from cstool.plan.commands.compile import check_plots
from cstool.plan.commands.estimate_flags import CostFlags, LimitFlags, ModelVariantFlags, SpaceFlags

if TYPE_CHECKING:
    from collections.abc import Sequence


def optimize(
    *,
    params: ModelParamsOption = None,
    tokens: Annotated[str | None, option("--tokens", "N", "Tokens of the job, such as 300B.")] = None,
    limits: LimitFlags,
    costs: CostFlags,
    system: Annotated[
        str, option("--system", "NAME|FILE", "The kind of each CSX: cs1, cs2, cs3, or a system file.", complete_system)
    ] = "cs2",
    space: SpaceFlags,
    memoryx: MemoryXSizeOption = None,
    execution_mode: ExecutionModeOption = "auto",
    expert_imbalance: ExpertImbalanceOption = 1.0,
    variants: ModelVariantFlags,
    software: SoftwareOption = None,
    num_workers_per_csx: SoftwareWorkersOption = None,
    plot: PlotOption = None,
    theme: ThemeOption = "light",
    csv: Annotated[Path | None, option("--csv", "FILE", "Write the rows of the table into a file.")] = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the fewest systems on which a job keeps within its limits, the best batch for them, and the alternatives.

    Of all plans on the same number of systems, the fastest is taken: its batch, micro-batches, mode and recomputation.
    Without --days it is the fastest plan of all. All printed numbers are modelled.
    """
    from cstool.plan.commands.optimize_report import front_document, print_found, write_front
    from cstool.plan.verbs.estimate_search import draw_front
    from cstool.plan.verbs.estimate_search import optimize as search
    from cstool.plan.verbs.results import parse_shares

    if params is None:
        raise EstimateError("--params is missing", "cstool estimate optimize --params FILE --tokens 300B --days 30")
    check_files(plot, csv)
    found = search(
        params,
        tokens=tokens,
        num_csx=space.num_csx,
        batch_size=space.batch_size,
        batch_per_csx=space.batch_per_csx,
        sparsities=() if space.sparsity is None else parse_shares(space.sparsity),
        overrides=set_ or (),
        system=system,
        memoryx=memoryx,
        execution_mode=execution_mode,
        expert_imbalance=expert_imbalance,
        frozen=variants.frozen,
        adapters=variants.adapters,
        software=software,
        num_workers_per_csx=num_workers_per_csx,
        **vars(limits),
        **vars(costs),
    )
    if csv is not None:
        write_front(csv, found)
    if plot:
        draw_front(found, plot, theme)
    if as_json:
        print_json(front_document(found))
        return
    print_found(found)


def check_files(plots: Sequence[Path] | None, csv: Path | None) -> None:
    """Check the names of files, before any long work.

    Raises:
        EstimateError: a picture is neither .svg nor .png, rows are no .csv file, two go into one file
    """
    if csv is not None and csv.suffix.lower() != ".csv":
        raise EstimateError(f"--csv: must end in .csv, got {csv}")
    if csv is not None and csv.exists() and not csv.is_file():
        raise EstimateError(f"--csv: must be a file, got {'a folder' if csv.is_dir() else 'what is none'}: {csv}")
    plots = plots or ()
    if len({path.absolute() for path in plots}) < len(plots):
        raise EstimateError(f"--plot: must be another file than --plot, got {plots[-1]}")
    check_plots(plots, EstimateError)
