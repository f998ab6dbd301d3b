"""This host measured, and a training step predicted from that: the verb behind `cstool estimate --system host`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cstool.foundation.errors import EstimateError
from cstool.plan.verbs.estimating import one_trainer

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.model.params import Params
    from cstool.training.host.ranks import Link, RankedStep, RanksSetup
    from cstool.training.host.step import HostRates, HostSetup, HostStep


class RanksPrediction(NamedTuple):
    """A training step on several ranks, each on a host like this one, or all of them on this one."""

    setup: RanksSetup
    step: RankedStep
    num_csx: int
    on_one_host: bool


class HostPrediction(NamedTuple):
    """A training step as this host would take it; samples count as tokens where there is no sequence.

    With several ranks, setup and step are of the rank that computes for longest.
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
    """Rates of this host, their file, whether they were measured just now; and a step, if it was asked for."""

    rates: HostRates
    file: Path
    measured_now: bool
    predicted: HostPrediction | None


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
    """Predict a training step on this machine from its rates, which are measured once.

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
        EstimateError: the rates cannot be kept, the file has no batch, or fewer systems or grains than ranks
        ClusterError: the systems do not divide the batch
        ParamsError: the file breaks rules
    """
    from cstool.plan.estimation.request import parse_tokens
    from cstool.training.host.rank_flags import check_ranks, parse_link
    from cstool.training.host.rates import load_rates, rates_file

    params = None if file is None else one_trainer(file, overrides)
    wanted = None if tokens is None else parse_tokens(tokens)
    over = None if link is None else parse_link(link)
    if params is not None and ranks is not None:
        check_ranks(params, ranks)
    kept = None if calibrates else load_rates()
    rates = _calibrated(begin, progress) if kept is None else kept
    predicted = None if params is None else _predicted(params, rates, wanted, ranks or 1, over)
    return HostEstimate(rates, rates_file(), kept is None, predicted)


def _calibrated(begin: Callable[[], None], progress: Progress) -> HostRates:
    from cstool.training.host.calibrate import calibrate
    from cstool.training.host.rates import rates_file, save_rates

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
    from cstool.model.graphs import declared_form, trained_graph
    from cstool.plan.estimation.point import DAY_S
    from cstool.plan.estimation.request import loader_of
    from cstool.training.host.planned import planned_ranks, planned_setup
    from cstool.training.host.ranks import predict_ranks
    from cstool.training.host.step import predict_step

    batch_size = loader_of(params).batch_size
    graph = trained_graph(params, declared_form(params))
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
