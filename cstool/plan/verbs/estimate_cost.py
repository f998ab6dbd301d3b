"""The cost of a training job, from estimates; the verb behind the costs of `cstool estimate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.model.verbs.asked import asked_params
from cstool.plan.verbs.estimating import Estimates

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.plan.estimation.cost import CostInputs, JobCost


def check_cost(tokens: str | int | None, **asked: Any) -> CostInputs:
    """Return the inputs for the cost of a job, checked before any long work.

    Args:
        tokens: of the job, such as "300B"; None without a job
        asked: the arguments of `cstool.plan.estimation.cost.make_cost_inputs`

    Raises:
        EstimateError: a number is not one, or is too small; or there is no job
    """
    from cstool.plan.estimation.cost import make_cost_inputs

    return make_cost_inputs(tokens=tokens, **asked)


def job_costs(
    found: Estimates,
    params: str | Path | Params,
    inputs: CostInputs,
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
) -> list[JobCost]:
    """Return the cost of a job, with its range, for each number of systems, `found.estimate` first.

    Args:
        found: with the tokens of the job; without them it costs nothing that can be told
        params: the file that was estimated, or its params
        inputs: see `check_cost`
        overrides: of values of the file

    Raises:
        EstimateError: with such failures the job does not end, or nothing is known of the time of a checkpoint
    """
    from cstool.plan.estimation.cost import job_cost
    from cstool.plan.estimation.cost_band import with_band

    if found.estimate.tokens is None:
        return []
    steps = asked_params(params, overrides).checkpoint.steps
    others = [row.estimate for row in found.scaling if row.estimate is not None and row.label != found.first.label]
    costs = ((job_cost(each, inputs, steps), each) for each in (found.estimate, *others))
    return [with_band(cost, each, inputs, steps) for cost, each in costs if cost is not None]
