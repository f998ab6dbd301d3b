"""The range of the cost of a job: its cost if steps took as long as four fifths of results like it allow.

The range of a step comes from `cstool.plan.estimation.bands`. The user's inputs (price, failures) have none, nor have
the rate of checkpoints and the power of systems and servers, of which too little is published to tell.
"""

from dataclasses import replace

from cstool.foundation.errors import EstimateError
from cstool.plan.estimation.cost import CostBand, CostInputs, JobCost, job_cost
from cstool.plan.estimation.point import Estimate


def with_band(cost: JobCost, found: Estimate, asked: CostInputs, checkpoint_steps: int | None) -> JobCost:
    """Return the cost of an estimate's job with its range, where one is known.

    Args:
        cost: of the estimate
        asked, checkpoint_steps: as of `cstool.plan.estimation.cost.job_cost`
    """
    if not found.band.is_known:
        return cost
    low = job_cost(stretched(found, found.band.low), asked, checkpoint_steps)
    try:
        high = job_cost(stretched(found, found.band.high), asked, checkpoint_steps)
    except EstimateError:
        # With longer steps there are fewer of them between failures, and it may not end.
        high = None
    assert low is not None
    band = CostBand(
        (low.days, None if high is None else high.days),
        (low.mwh, None if high is None else high.mwh),
        (low.price, None if high is None else high.price),
    )
    return replace(cost, band=band)


def stretched(found: Estimate, factor: float) -> Estimate:
    """Return an estimate whose step takes so many times as long, with all work in it."""
    artifact = replace(found.artifact, step_cycles=round(found.artifact.step_cycles * factor))
    step = replace(
        found.step,
        spent_s={name: factor * seconds for name, seconds in found.step.spent_s.items()},
        busy_s={name: factor * seconds for name, seconds in found.step.busy_s.items()},
    )
    return replace(found, artifact=artifact, step=step)
