"""Estimate, from a params file: what the modelled cluster makes of a step; the verbs behind `cstool estimate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cstool.errors import EstimateError
from cstool.verbs.asked import asked_params, check_choice, load_trainers
from cstool.verbs.compiling import EXECUTION_MODES, RECOMPUTE

if TYPE_CHECKING:
    from cstool.estimation import Estimate, Estimator, Row
    from cstool.estimation.mask_updates import MaskUpdates
    from cstool.estimation.published import Comparison, Prediction
    from cstool.params import Params
    from cstool.perf.host import HostRates, HostSetup, HostStep
    from cstool.perf.ranks import Link, RankedStep, RanksSetup
    from cstool.progress import Progress

SPARSITY_KEY = "trainer.init.sparsity"


class Estimates(NamedTuple):
    """An estimate, and others beside it. All of it is modelled.

    Args:
        first: of the first number of systems and the first share of zeros
        estimate: that of `first`
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


class RanksPrediction(NamedTuple):
    """A training step on several ranks, each on a host like this one, or all of them on this one."""

    setup: RanksSetup
    step: RankedStep
    num_csx: int
    on_one_host: bool


class HostPrediction(NamedTuple):
    """A training step as this host would take it; samples count as tokens where there is no sequence.

    Of several ranks, setup and step are those of the rank that computes for longest.
    """

    model: str
    parameters: int
    batch_size: int
    setup: HostSetup
    step: HostStep
    tokens_per_s: float
    days: float | None
    ranks: RanksPrediction | None


class HostEstimate(NamedTuple):
    """What this host can do, the file that keeps it, whether it was measured just now; and a step, if one was asked."""

    rates: HostRates
    file: Path
    measured_now: bool
    predicted: HostPrediction | None


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
        num_csx: number of CSX systems; None for that of the params
        system: what each CSX is: cs1, cs2, cs3, or a system file
        batch_per_csx: samples of each system; None shares the batch of the file out
        memoryx: capacity of MemoryX, such as "12TB"; None for the largest there is
        tokens: to train with, such as "300B"; `days` of the result is how long that takes
        execution_mode: how the model uses the wafer; "auto" takes what is faster
        recompute: compute activations again where that is faster, where it is needed, never, or always
        expert_imbalance: tokens of the busiest expert of each layer, as a multiple of the mean
        software: release whose hosts feed the systems, such as "2.0"; None for hosts that take no time
        num_workers_per_csx: input workers of each system; None for as many as a run has unless it asks for others
        frozen: weights that stay as they are, such as "first:16", by patterns of names or numbers of layers
        adapters: low-rank ones beside frozen layers, such as "rank=16,layers=q,v"

    Returns:
        Time of a step [s], what bounds it, tokens/s, power [W], the artifact; all of it modelled

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
        EstimateError, CompileError: there is no estimate at all; the error is that of the first number
        ParamsError: the file breaks rules, or there is no such system
    """
    from cstool.estimation import scale

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
        num_csx: numbers of systems, ascending; none for that of the params
        sparsities: shares of zeros, ascending; none for those of the params
        asked: the other arguments of `estimate`

    Raises:
        EstimateError, CompileError, ParamsError: as of `estimate`; also where the file has several trainers
    """
    from cstool.compiler.density import sparsity_notes
    from cstool.estimation import Row, scale, smallest_compute_bound, sweep_sparsity
    from cstool.estimation.faster import fewer_systems, smaller_batch
    from cstool.estimation.mask_updates import mask_updates
    from cstool.estimation.request import samples_per_csx

    def estimator(share: float | None) -> Estimator:
        typed = {} if share is None else {SPARSITY_KEY: ("--sparsity", share)}
        return _estimator(_one_trainer(file, overrides, typed), None, **asked)

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
    from cstool.estimation.picture import plot_estimate

    plot_estimate(paths, theme, found.estimate, found.scaling, found.sparsities)


def write_timeline(found: Estimate, path: Path) -> None:
    """Write a step as a timeline in Chrome's trace format.

    Raises:
        TraceError: it cannot be written
    """
    from cstool.estimation.timeline import draw_timeline

    draw_timeline(found).write(path)


def compare_published() -> tuple[Comparison, dict[str, Prediction]]:
    """Set the model beside what is published; and what fitted results would be with their numbers fitted to others."""
    from cstool.estimation.fit import left_out
    from cstool.estimation.published import compare, load_published

    return compare(), left_out(load_published())


def estimate_on_host(
    file: Path | None,
    overrides: Sequence[str] = (),
    *,
    tokens: str | None = None,
    ranks: int | None = None,
    link: str | None = None,
    calibrates: bool = False,
    begin: Callable[[], None],
    progress: Progress,
) -> HostEstimate:
    """Predict a training step on this machine, from what it can do, which is measured once.

    Args:
        file: a params file of one trainer; None to measure alone
        overrides: as for `load_all_params`
        tokens: to train with, such as "300B"
        ranks: processes that share the systems of the params; None for one
        link: of the ranks, each on a host like this one, such as "10Gb/s"; None for all of them on this host
        calibrates: measure once more
        begin: is called before anything is measured
        progress: is told

    Raises:
        EstimateError: the rates cannot be kept, the file has no batch, or not so many systems or grains as ranks
        ClusterError: the systems do not divide the batch
        ParamsError: the file breaks rules
    """
    from cstool.estimation.ranks import check_ranks, parse_link
    from cstool.estimation.request import parse_tokens
    from cstool.run.report.host_rates import load_rates, rates_file

    params = None if file is None else _one_trainer(file, overrides)
    wanted = None if tokens is None else parse_tokens(tokens)
    over = None if link is None else parse_link(link)
    if params is not None and ranks is not None:
        check_ranks(params, ranks)
    kept = None if calibrates else load_rates()
    rates = _calibrated(begin, progress) if kept is None else kept
    predicted = None if params is None else _predicted(params, rates, wanted, ranks or 1, over)
    return HostEstimate(rates, rates_file(), kept is None, predicted)


def _calibrated(begin: Callable[[], None], progress: Progress) -> HostRates:
    from cstool.estimation.calibrate import calibrate
    from cstool.run.report.host_rates import rates_file, save_rates

    folder = rates_file().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EstimateError(f"{folder}: must be a folder that can be written, got: {error.strerror}") from error
    begin()
    task = "Measuring"

    def show(what: str, done: int, total: int) -> None:
        if done == 0:
            progress.start(task, total)
        progress.advance(task, done, what)

    rates = calibrate(folder, show)
    progress.finish(task)
    save_rates(rates)
    return rates


def _predicted(params: Params, rates: HostRates, tokens: int | None, ranks: int, link: Link | None) -> HostPrediction:
    from cstool.estimation.point import DAY_S
    from cstool.estimation.request import loader_of
    from cstool.models import build_graph, declared_form
    from cstool.perf.host import predict_step
    from cstool.perf.ranks import predict_ranks
    from cstool.run.report.host_prediction import planned_ranks, planned_setup

    batch_size = loader_of(params).batch_size
    graph = build_graph(params.model, declared_form(params))
    shared = None
    if ranks == 1:
        setup = planned_setup(params, graph, batch_size)
        step = predict_step(graph, rates, setup)
    else:
        dealt = planned_ranks(params, graph, batch_size, ranks, rates, link)
        on_ranks = predict_ranks(graph, rates, dealt)
        setup, step = dealt.setups[on_ranks.slowest], on_ranks.of(on_ranks.slowest)
        shared = RanksPrediction(dealt, on_ranks, params.num_csx, link is None)
    tokens_per_s = batch_size * (graph.sequence_length or 1) / step.step_s
    days = None if tokens is None else tokens / tokens_per_s / DAY_S
    return HostPrediction(graph.name, graph.parameter_count, batch_size, setup, step, tokens_per_s, days, shared)


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
    from cstool.estimation import Estimator, make_request

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


def _one_trainer(file: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]] | None = None) -> Params:
    trainers = load_trainers(file, overrides, flags)
    if len(trainers) > 1:
        raise EstimateError(f"--params: must be of one trainer, got {len(trainers)} in {file}", "estimate them apart")
    return trainers[0]
