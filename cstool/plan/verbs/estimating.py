"""Estimate a params file: a step on the modelled cluster; the verbs behind `cstool estimate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import check_choice
from cstool.model.verbs.asked import asked_params, load_trainers
from cstool.plan.verbs.compiling import EXECUTION_MODES, RECOMPUTE

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.plan.estimation import Estimate, EstimateOptions, Estimator, Row, Tried
    from cstool.plan.estimation.comparison import Comparison
    from cstool.plan.estimation.cost import CostInputs, JobCost
    from cstool.plan.estimation.gpu import Beside, GpuValidation
    from cstool.plan.estimation.inference import InferEstimate
    from cstool.plan.estimation.mask_updates import MaskUpdates
    from cstool.plan.estimation.published import Prediction

SPARSITY_KEY = "trainer.init.sparsity"
CHOICES = ("none", "all", "needed", "fastest")
"""choices of recomputation, the least first; the last two choose between the first two, or go beyond them"""


@dataclass(frozen=True)
class EstimateRequest:
    """A training step to estimate, and the questions about it.

    Args:
        file: of params, of one trainer
        overrides: of its values
        options: of every estimate
        num_csx: numbers of systems, such as "1,2,4..192"; None for the params' number
        sparsity: shares of zeros, such as "0,0.5,0.9"; None for the params' share
        costs: arguments of `cstool.plan.estimation.cost.make_cost_inputs`
        gpus: numbers of GPUs for the same job, such as "8..64"; None for none
        gpu: their kind: a known name, or a GPU file
        compares_recompute: whether to estimate all choices of recomputation
    """

    file: Path
    overrides: Sequence[str]
    options: EstimateOptions
    num_csx: str | None = None
    sparsity: str | None = None
    costs: Mapping[str, Any] = field(default_factory=dict)
    gpus: str | None = None
    gpu: str = "a100"
    compares_recompute: bool = False


@dataclass(frozen=True)
class Estimates:
    """An estimate, and others beside it. All of it is modelled.

    Args:
        first: of the first number of systems and the first share of zeros
        estimate: the estimate for `first`
        sparsity: the first share of zeros; None for the params' share
        smallest: fewest samples per system with which links off the wafer do not limit it; None if there are none
        scaling: over numbers of systems; empty for one
        sparsities: over shares of zeros; empty for one
        notes: on the sparsity of `first`
        updates: of masks that change in the run of `first`
        smaller_batch: on as many systems, at a rate over 1 % higher; None if none is found
        fewer_systems: with the same batch, at a rate over 1 % higher; None if none are found
        costs: of the job, for each number of systems, `estimate` first; empty without a number of tokens
        gpus: for the same job; None if not asked for
        choices: of recomputation, the least first; empty if not asked for
    """

    first: Row
    estimate: Estimate
    sparsity: float | None
    smallest: int | None
    scaling: Sequence[Row]
    sparsities: Sequence[Row]
    notes: Sequence[str]
    updates: Sequence[MaskUpdates]
    smaller_batch: Estimate | None
    fewer_systems: Estimate | None
    costs: Sequence[JobCost]
    gpus: Beside | None
    choices: Sequence[Tried[str, Estimate]]


class Validation(NamedTuple):
    """Published results beside the model, predictions of fitted results by the others of their number, and GPUs."""

    compared: Comparison
    left_out: dict[str, Prediction]
    gpus: GpuValidation


def estimate(
    params: str | Path | Params,
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    num_csx: int | None = None,
    system: str | Path = "cs2",
    batch_per_csx: int | None = None,
    memoryx: str | None = None,
    tokens: str | int | None = None,
    execution_mode: Literal["auto", "pipelined", "weight_streaming"] = "auto",
    recompute: Literal["needed", "fastest", "none", "all"] = "fastest",
    expert_imbalance: float = 1.0,
    software: str | None = None,
    num_workers_per_csx: int | None = None,
    frozen: str | None = None,
    adapters: str | None = None,
) -> Estimate:
    """Predict a training step on the modelled cluster; nothing runs, and no data is needed.

    Args:
        params: a params file of one trainer, or params that are loaded
        overrides: values by dotted key, for example `{"trainer.init.sparsity": 0.9}`
        num_csx: number of CSX systems; None for the params' number
        system: kind of each CSX: cs1, cs2, cs3, or a system file
        batch_per_csx: samples of each system; None shares the batch of the file out
        memoryx: capacity of MemoryX, such as "12TB"; None for the largest there is
        tokens: to train with, such as "300B"; `days` of the result is the time for them
        execution_mode: how the model uses the wafer; "auto" takes the faster one
        recompute: compute activations again where that is faster, where it is needed, never, or always
        expert_imbalance: tokens of the busiest expert of each layer, as a multiple of the mean
        software: release whose hosts feed the systems, such as "2.0"; None for hosts that take no time
        num_workers_per_csx: input workers of each system; None for the default number of a run
        frozen: weights that stay as they are, such as "first:16", by patterns of names or numbers of layers
        adapters: low-rank ones beside frozen layers, such as "rank=16,layers=q,v"

    Returns:
        Time of a step [s], its bound, tokens/s, power [W], the artifact; all of it modelled

    Raises:
        EstimateError: there is nothing to estimate, or not on so many systems
        CompileError: the model does not fit
        ParamsError: the file breaks rules, or there is no such system
    """
    found = _asked_estimator(
        params,
        overrides,
        system=system,
        batch_per_csx=batch_per_csx,
        memoryx=memoryx,
        tokens=tokens,
        execution_mode=execution_mode,
        recompute=recompute,
        expert_imbalance=expert_imbalance,
        software=software,
        num_workers_per_csx=num_workers_per_csx,
        frozen=frozen,
        adapters=adapters,
    )
    return found.at(found.request.params.num_csx if num_csx is None else num_csx)


def estimate_scaling(
    params: str | Path | Params,
    num_csx: Sequence[int],
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    system: str | Path = "cs2",
    batch_per_csx: int | None = None,
    memoryx: str | None = None,
    tokens: str | int | None = None,
    execution_mode: Literal["auto", "pipelined", "weight_streaming"] = "auto",
    recompute: Literal["needed", "fastest", "none", "all"] = "fastest",
    expert_imbalance: float = 1.0,
    software: str | None = None,
    num_workers_per_csx: int | None = None,
    frozen: str | None = None,
    adapters: str | None = None,
) -> list[Row]:
    """Predict a training step on several numbers of systems, side by side.

    Args:
        params: a params file of one trainer, or params that are loaded
        num_csx: numbers of systems
        overrides, system, batch_per_csx, memoryx, tokens, execution_mode, recompute, expert_imbalance: as for
            `estimate`
        software, num_workers_per_csx, frozen, adapters: likewise

    Returns:
        For each number the estimate, or why there is none, with its speedup over the first

    Raises:
        EstimateError, CompileError: there is no estimate at all; the error of the first number
        ParamsError: the file breaks rules, or there is no such system
    """
    from cstool.plan.estimation import scale

    base = _asked_estimator(
        params,
        overrides,
        system=system,
        batch_per_csx=batch_per_csx,
        memoryx=memoryx,
        tokens=tokens,
        execution_mode=execution_mode,
        recompute=recompute,
        expert_imbalance=expert_imbalance,
        software=software,
        num_workers_per_csx=num_workers_per_csx,
        frozen=frozen,
        adapters=adapters,
    )
    return scale(base, num_csx)


def _asked_estimator(
    params: str | Path | Params, overrides: Mapping[str, Any] | Sequence[str] | None, **options: Any
) -> Estimator:
    """Return the estimator for the arguments of `estimate`."""
    check_choice("execution_mode", options.get("execution_mode", "auto"), EXECUTION_MODES)
    check_choice("recompute", options.get("recompute", "fastest"), RECOMPUTE)
    from cstool.plan.estimation import Estimator, make_request

    asked = estimate_options(**options)
    return Estimator(make_request(asked_params(params, overrides), asked), keeps=True)


def estimate_options(*, system: str | Path = "cs2", tokens: str | int | None = None, **more: Any) -> EstimateOptions:
    """Return the options of an estimate, with a path or a number as it would be typed."""
    from cstool.plan.estimation import EstimateOptions

    return EstimateOptions(str(system), tokens=None if tokens is None else str(tokens), **more)


def estimate_all(asked: EstimateRequest) -> Estimates:
    """Predict a training step on several numbers of systems, with several shares of zeros, and answer all questions.

    Raises:
        EstimateError, CompileError, ParamsError: as of `estimate`; also where the file has several trainers, a number
            is not one, the job does not end, or the closed forms of GPUs do not know the model
    """
    from cstool.plan.compiler.density import sparsity_notes
    from cstool.plan.estimation import Estimator, Row, make_request, scale, smallest_compute_bound, sweep_sparsity
    from cstool.plan.estimation.cost import make_cost_inputs
    from cstool.plan.estimation.faster import fewer_systems, smaller_batch
    from cstool.plan.estimation.gpu import beside_gpus
    from cstool.plan.estimation.limits import parse_counts, parse_shares
    from cstool.plan.estimation.mask_updates import mask_updates
    from cstool.plan.estimation.request import samples_per_csx
    from cstool.plan.estimation.sweep import each_or_why

    inputs = make_cost_inputs(tokens=asked.options.tokens, **asked.costs)
    shares = () if asked.sparsity is None else parse_shares(asked.sparsity)
    num_csx = () if asked.num_csx is None else parse_counts("--num_csx", asked.num_csx, "systems")
    gpus = () if asked.gpus is None else parse_counts("--gpus", asked.gpus, "GPUs")

    def estimator(share: float | None) -> Estimator:
        typed = {} if share is None else {SPARSITY_KEY: ("--sparsity", share)}
        return Estimator(make_request(one_trainer(asked.file, asked.overrides, typed), asked.options), keeps=True)

    sparsity = shares[0] if shares else None
    base = estimator(sparsity)
    request = base.request
    counts = num_csx or (request.params.num_csx,)
    samples_per_csx(request, counts[-1], is_alone=False)
    found = base.at(counts[0])
    scaling = scale(base, counts) if len(counts) > 1 else ()
    estimators = dict.fromkeys(shares[:1], base) | {share: estimator(share) for share in shares[1:]}
    return Estimates(
        first=Row(counts[0], found),
        estimate=found,
        sparsity=sparsity,
        scaling=scaling,
        sparsities=sweep_sparsity(estimators, counts[0]) if len(shares) > 1 else (),
        notes=sparsity_notes(request.params, found.artifact),
        smallest=smallest_compute_bound(base, found),
        updates=mask_updates(request, found),
        smaller_batch=smaller_batch(base, found),
        fewer_systems=fewer_systems(base, found),
        costs=_costs(found, scaling, inputs, request.params.checkpoint.steps),
        gpus=beside_gpus(request.params, found, asked.gpu, gpus) if gpus else None,
        choices=each_or_why(
            CHOICES if asked.compares_recompute else (),
            lambda name: Estimator(replace(request, recompute=name)).at(counts[0]),
        ),
    )


def _costs(found: Estimate, scaling: Sequence[Row], inputs: CostInputs, steps: int | None) -> list[JobCost]:
    """Return the cost of a job, with its range, for an estimate, then for all other numbers of systems."""
    from cstool.plan.estimation import estimates_in
    from cstool.plan.estimation.cost import cost_with_band

    if found.tokens is None:
        return []
    others = [each for each in estimates_in(scaling) if each.num_csx != found.num_csx]
    return [cost_with_band(each, inputs, steps) for each in (found, *others)]


def estimate_inference(
    params: Path, overrides: Sequence[str], system: str, **asked: Any
) -> list[Tried[int, InferEstimate]]:
    """Predict how a decoder answers on the modelled cluster; nothing runs.

    Args:
        params: a params file of one trainer
        overrides: of its values
        system: kind of each CSX
        asked: the other arguments of `cstool.plan.estimation.inference.make_infer_request`

    Returns:
        For each number of users time to the first token [s], tokens/s, energy per token [J]; all of it modelled

    Raises:
        EstimateError: the model does not generate text, the context is too short, or nothing fits
        ParamsError: the file breaks rules, or there is no such system
    """
    from cstool.plan.estimation.inference import infer_rows, make_infer_request

    return infer_rows(make_infer_request(asked_params(params, overrides), system, **asked))


def draw_estimates(found: Estimates, paths: Sequence[Path], theme: str) -> None:
    """Draw estimates into files, .svg or .png, on a "light" or "dark" page.

    Raises:
        EstimateError: a file cannot be written
    """
    from cstool.plan.estimation.picture import estimate_picture
    from cstool.plan.pictures.draw import write_pictures
    from cstool.plan.pictures.estimate import estimate_figure

    picture = estimate_picture(found.estimate, found.scaling, found.sparsities)
    write_pictures(lambda: estimate_figure(picture), paths, theme, EstimateError)


def write_timeline(found: Estimate, path: Path) -> None:
    """Write a step as a timeline in Chrome's trace format.

    Raises:
        TraceError: it cannot be written
    """
    from cstool.plan.estimation.timeline import draw_timeline

    draw_timeline(found).write(path)


def validate_estimates() -> Validation:
    """Compare the model with published results; and predict fitted results with their numbers fitted to others."""
    from cstool.plan.estimation.comparison import compare
    from cstool.plan.estimation.fit import left_out
    from cstool.plan.estimation.gpu import validate_gpus
    from cstool.plan.estimation.published import load_published

    return Validation(compare(), left_out(load_published()), validate_gpus())


def one_trainer(file: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]] | None = None) -> Params:
    """Load a params file; arguments and errors as of `load_params`, EstimateError where it has several trainers."""
    trainers = load_trainers(file, overrides, flags)
    if len(trainers) > 1:
        raise EstimateError(f"--params: must be of one trainer, got {len(trainers)} in {file}", "estimate them apart")
    return trainers[0]
