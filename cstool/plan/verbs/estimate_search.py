"""Search for the cluster, batch and sparsity that a job needs at least; the verb behind `cstool estimate optimize`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import check_choice
from cstool.model.verbs.asked import asked_params
from cstool.plan.verbs.compiling import EXECUTION_MODES
from cstool.plan.verbs.estimating import SPARSITY_KEY, estimate_options

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.plan.estimation.plan import Found


def optimize(
    params: str | Path | Params,
    *,
    tokens: str | int | None,
    days: float | None = None,
    power: str | None = None,
    budget: str | None = None,
    confident: bool = False,
    num_csx: int | None = None,
    batch_size: str | int | None = None,
    batch_per_csx: str | int | None = None,
    sparsities: Sequence[float] = (),
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    price: float | None = None,
    **more: Any,
) -> Found:
    """Find the fewest systems on which a job keeps within its limits; of plans on as many, the plan of the least time.

    Without a limit of days one system would always do: then the plan of the least time is found.

    Args:
        params: a params file of one trainer, or params that are loaded
        tokens: of the job, such as "300B"
        days: at most, with checkpoints and failures
        power: of systems and servers, at most, such as "500kW"
        budget: at most, such as "2M"; with `price`, of a system for an hour
        confident: whether days and budget must hold at the slow end of the range of the estimate
        num_csx: at most so many systems; None for as many as a cluster has
        batch_size: global batches that are allowed, such as "512..2048", which doubles; None for the file's batch
        batch_per_csx: batches of each system that are allowed, instead
        sparsities: shares of zeros that are allowed; none for the params' share. The tokens are the same
        overrides: of values of the params
        price: of a system for an hour
        more: `mtbf` and the other arguments of `cstool.plan.estimation.cost.make_cost_inputs`; system, memoryx,
            execution_mode, expert_imbalance, frozen, adapters, software, num_workers_per_csx: see `estimate`

    Returns:
        The plan, plans of other shares of zeros, and the front of the alternatives; all of it modelled

    Raises:
        EstimateError: the limits cannot be kept: the reason, and the nearest plan; or they are invalid
        CompileError: the model does not fit
        ParamsError: the file breaks rules, or there is no such system
    """
    check_choice("execution_mode", more.get("execution_mode", "auto"), EXECUTION_MODES)
    from cstool.plan.estimation.cost import make_cost_inputs
    from cstool.plan.estimation.limits import make_limits, make_space
    from cstool.plan.estimation.request import EstimateOptions, loader_of, make_request
    from cstool.plan.estimation.search import Model, Search
    from cstool.plan.estimation.unmet import unmet

    limits = make_limits(tokens=tokens, days=days, power=power, budget=budget, price=price, confident=confident)
    of_estimates = {field.name: more.pop(field.name) for field in fields(EstimateOptions) if field.name in more}
    options = estimate_options(tokens=tokens, **of_estimates)
    inputs = make_cost_inputs(tokens=tokens, price=price, **more)
    base = asked_params(params, overrides)
    space = make_space(
        loader_of(base).batch_size,
        batch_size=None if batch_size is None else str(batch_size),
        batch_per_csx=None if batch_per_csx is None else str(batch_per_csx),
        num_csx=num_csx,
    )
    shares: dict[float | None, Params] = {share: asked_params(params, _with(overrides, share)) for share in sparsities}
    asked = list((shares or {None: base}).items())

    def search(options: EstimateOptions) -> Search:
        models = [Model(share, make_request(each, options), inputs, each.checkpoint.steps) for share, each in asked]
        return Search(models, space, limits)

    def elsewhere(name: str) -> Search | None:
        # Where fewer systems are in its clusters, or nothing is known of its hosts, there is no estimate.
        with suppress(EstimateError):
            return search(replace(options, system=name, memoryx=None))
        return None

    here = search(options)
    if (found := here.run()) is not None:
        return found
    raise unmet(here, elsewhere, _newer_than(options.system))


def _newer_than(system: str) -> tuple[str, ...]:
    """Return the names of the systems after one; none after a system of a file."""
    from cstool.model.system import system_names

    names = tuple(system_names())
    return names[names.index(system) + 1 :] if system in names else ()


def _with(overrides: Mapping[str, Any] | Sequence[str] | None, share: float) -> Mapping[str, Any] | Sequence[str]:
    """Return overrides with a share of zeros."""
    if overrides is None or isinstance(overrides, Mapping):
        return {**(overrides or {}), SPARSITY_KEY: share}
    return (*overrides, f"{SPARSITY_KEY}={share!r}")


def draw_front(found: Found, paths: Sequence[Path], theme: str) -> None:
    """Draw the front into files, .svg or .png, on a "light" or "dark" page.

    Raises:
        EstimateError: a file cannot be written
    """
    from cstool.plan.estimation.front_picture import front_picture
    from cstool.plan.pictures.draw import write_pictures
    from cstool.plan.pictures.pareto import front_figure

    write_pictures(lambda: front_figure(front_picture(found)), paths, theme, EstimateError)
