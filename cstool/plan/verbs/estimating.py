"""Estimate a params file: a step on the modelled cluster; the verbs behind `cstool estimate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import check_choice
from cstool.model.verbs.asked import asked_params, load_trainers
from cstool.plan.verbs.compiling import EXECUTION_MODES, RECOMPUTE

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.plan.estimation import Estimate, Estimator, Row
    from cstool.plan.estimation.mask_updates import MaskUpdates
    from cstool.plan.estimation.published import Comparison, Prediction

SPARSITY_KEY = "trainer.init.sparsity"


class Estimates(NamedTuple):
    """An estimate, and others beside it. All of it is modelled.

    Args:
        first: of the first number of systems and the first share of zeros
        estimate: the estimate for `first`
        smallest: fewest samples per system with which links off the wafer do not limit it; None if there are none
        scaling: over numbers of systems; empty for one
        sparsities: over shares of zeros; empty for one
        notes: on the sparsity of `first`
        updates: of masks that change in the run of `first`
        smaller_batch: on as many systems, at a rate over 1 % higher; None if none is found
        fewer_systems: with the same batch, at a rate over 1 % higher; None if none are found
    """

    first: Row
    estimate: Estimate
    smallest: int | None
    scaling: tuple[Row, ...]
    sparsities: tuple[Row, ...]
    notes: tuple[str, ...]
    updates: tuple[MaskUpdates, ...] = ()
    smaller_batch: Estimate | None = None
    fewer_systems: Estimate | None = None


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
    found = _estimator(
        params,
        overrides,
        system,
        batch_per_csx,
        memoryx,
        tokens,
        execution_mode,
        recompute,
        expert_imbalance,
        software=software,
        workers=num_workers_per_csx,
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

    found = _estimator(
        params,
        overrides,
        system,
        batch_per_csx,
        memoryx,
        tokens,
        execution_mode,
        recompute,
        expert_imbalance,
        software=software,
        workers=num_workers_per_csx,
        frozen=frozen,
        adapters=adapters,
    )
    return scale(found, num_csx)


def estimate_all(
    file: Path,
    overrides: Sequence[str] = (),
    *,
    num_csx: Sequence[int] = (),
    sparsities: Sequence[float] = (),
    **asked: Any,
) -> Estimates:
    """Predict a training step on several numbers of systems, and with several shares of zeros.

    Args:
        file: of params
        overrides: of its values
        num_csx: numbers of systems, ascending; none for the params' number
        sparsities: shares of zeros, ascending; none for the params' share
        asked: the other arguments of `estimate`

    Raises:
        EstimateError, CompileError, ParamsError: as of `estimate`; also where the file has several trainers
    """
    from cstool.plan.compiler.density import sparsity_notes
    from cstool.plan.estimation import Row, scale, smallest_compute_bound, sweep_sparsity
    from cstool.plan.estimation.faster import fewer_systems, smaller_batch
    from cstool.plan.estimation.mask_updates import mask_updates
    from cstool.plan.estimation.request import samples_per_csx

    def estimator(share: float | None) -> Estimator:
        typed = {} if share is None else {SPARSITY_KEY: ("--sparsity", share)}
        return _estimator(one_trainer(file, overrides, typed), None, **asked)

    base = estimator(sparsities[0] if sparsities else None)
    counts = num_csx or (base.request.params.num_csx,)
    samples_per_csx(base.request, counts[-1], is_alone=False)
    found = base.at(counts[0])
    scaling = scale(base, counts) if len(counts) > 1 else ()
    estimators = dict.fromkeys(sparsities[:1], base) | {share: estimator(share) for share in sparsities[1:]}
    sparse = sweep_sparsity(estimators, counts[0]) if len(sparsities) > 1 else ()
    notes = tuple(sparsity_notes(base.request.params, found.artifact))
    smallest = smallest_compute_bound(base, found)
    updates = mask_updates(base.request, found)
    return Estimates(
        Row(counts[0], found),
        found,
        smallest,
        tuple(scaling),
        tuple(sparse),
        notes,
        updates,
        smaller_batch(base, found),
        fewer_systems(base, found),
    )


def draw_estimates(found: Estimates, paths: Sequence[Path], theme: str) -> None:
    """Draw estimates into files, .svg or .png, on a "light" or "dark" page.

    Raises:
        EstimateError: a file cannot be written
    """
    from cstool.plan.estimation.picture import plot_estimate

    plot_estimate(paths, theme, found.estimate, found.scaling, found.sparsities)


def write_timeline(found: Estimate, path: Path) -> None:
    """Write a step as a timeline in Chrome's trace format.

    Raises:
        TraceError: it cannot be written
    """
    from cstool.plan.estimation.timeline import draw_timeline

    draw_timeline(found).write(path)


def compare_published() -> tuple[Comparison, dict[str, Prediction]]:
    """Compare the model with published results; and predict fitted results with their numbers fitted to others."""
    from cstool.plan.estimation.fit import left_out
    from cstool.plan.estimation.published import compare, load_published

    return compare(), left_out(load_published())


def _estimator(
    params: str | Path | Params,
    overrides: Mapping[str, Any] | Sequence[str] | None,
    system: str | Path,
    batch_per_csx: int | None,
    memoryx: str | None,
    tokens: str | int | None,
    execution_mode: str,
    recompute: str,
    expert_imbalance: float = 1.0,
    **more: Any,
) -> Estimator:
    check_choice("execution_mode", execution_mode, EXECUTION_MODES)
    check_choice("recompute", recompute, RECOMPUTE)
    from cstool.plan.estimation import Estimator, make_request

    request = make_request(
        asked_params(params, overrides),
        str(system),
        batch_per_csx=batch_per_csx,
        memoryx=memoryx,
        tokens=None if tokens is None else str(tokens),
        execution_mode=execution_mode,
        recompute=recompute,
        expert_imbalance=expert_imbalance,
        **more,
    )
    return Estimator(request, keeps=True)


def one_trainer(file: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]] | None = None) -> Params:
    """Load a params file; arguments and errors as of `load_params`, EstimateError where it has several trainers."""
    trainers = load_trainers(file, overrides, flags)
    if len(trainers) > 1:
        raise EstimateError(f"--params: must be of one trainer, got {len(trainers)} in {file}", "estimate them apart")
    return trainers[0]
