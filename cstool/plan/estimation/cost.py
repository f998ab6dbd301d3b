"""The cost of a training job: days with checkpoints and failures, energy with all servers, price, input workers.

All of it follows from the modelled step, from numbers of the system file with their sources, and from user input.

The range of a cost is the cost if steps took as long as four fifths of results like it allow. The range of a step comes
from `cstool.plan.estimation.bands`. The user's inputs (price, failures) have none, nor have the rate of checkpoints and
the power of systems and servers, of which too little is published to tell.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import BYTE_UNITS, parse_quantity
from cstool.plan.estimation.failures import best_interval_s, checkpoints, job_s
from cstool.plan.estimation.point import DAY_S, Estimate
from cstool.plan.estimation.servers import InputWorkers, input_workers, of_release, servers_of

HOUR_S = 3600.0
MWH_J = 3.6e9
RESTART_MINUTES = 10.0
"""from a failure to the first step after it, the reading of the checkpoint left out; chosen: the vendor's logs call
compiling, programming a cluster and sending weights 'a few minutes' each"""
MOST_STRETCH = 1000.0
"""a job that takes so many times its time without failures does not end"""


@dataclass(frozen=True)
class CostInputs:
    """Inputs for the cost of a job, checked; None where not given, or for the number of the system file.

    Args:
        price: of a system for an hour, in any currency
        mtbf_hours: mean time between the failures of one system
        restart_minutes: from a failure to the first step after it, the reading of the checkpoint left out
        checkpoint_hours: of work between two checkpoints
        checkpoint_bytes_per_s: of a checkpoint on its way to its file, or back
        worker_tokens_per_s: that an input worker delivers
    """

    price: float | None = None
    mtbf_hours: float | None = None
    restart_minutes: float | None = None
    checkpoint_hours: float | None = None
    checkpoint_bytes_per_s: float | None = None
    worker_tokens_per_s: float | None = None


def make_cost_inputs(
    *,
    price: float | None = None,
    mtbf: float | None = None,
    restart_minutes: float | None = None,
    checkpoint_hours: float | None = None,
    checkpoint_rate: str | None = None,
    worker_rate: float | None = None,
    tokens: str | int | None = None,
) -> CostInputs:
    """Return the inputs, checked.

    Args:
        price, mtbf, restart_minutes, checkpoint_hours, worker_rate: see `CostInputs`
        checkpoint_rate: such as "2GB", a second
        tokens: to train with; without them there is no job

    Raises:
        EstimateError: a number is not one, or is too small; or there is no job
    """
    asked = {
        "--price": price,
        "--mtbf": mtbf,
        "--restart_minutes": restart_minutes,
        "--checkpoint_hours": checkpoint_hours,
        "--checkpoint_rate": checkpoint_rate,
        "--worker_rate": worker_rate,
    }
    for flag, value in asked.items():
        if value is not None and tokens is None:
            raise EstimateError(f"{flag}: must stand beside --tokens, which say how long the job is, got {value}")
    if restart_minutes is not None and mtbf is None:
        raise EstimateError(f"--restart_minutes: must stand beside --mtbf, got {restart_minutes:g}")
    _check("--price", price, "a price of a system for an hour, at least 0", least=0.0)
    _check("--mtbf", mtbf, "hours between failures of one system, more than 0")
    _check("--restart_minutes", restart_minutes, "minutes, at least 0", least=0.0)
    _check("--checkpoint_hours", checkpoint_hours, "hours of work between checkpoints, more than 0")
    _check("--worker_rate", worker_rate, "tokens/s of an input worker, more than 0")
    rate = None if checkpoint_rate is None else parse_quantity(checkpoint_rate, BYTE_UNITS)
    if checkpoint_rate is not None and (rate is None or rate <= 0):
        raise EstimateError(f"--checkpoint_rate: must be bytes a second, such as 2GB, got {checkpoint_rate}")
    return CostInputs(price, mtbf, restart_minutes, checkpoint_hours, rate, worker_rate)


def _check(flag: str, value: float | None, rule: str, least: float | None = None) -> None:
    if value is None:
        return
    if not math.isfinite(value) or value < 0 or (least is None and value == 0):
        raise EstimateError(f"{flag}: must be {rule}, got {value:g}")


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a job.

    Args:
        state_bytes: of each: weights and optimizer state
        bytes_per_s: on the way to its file; None where nothing is known of it, and none takes time
        rate_from: where that is from
        interval_s: work between two checkpoints
        interval_from: its origin: "asked", "params", "best" with these failures, or "end" for the last one alone
        best_s: with which a long job would end soonest; None without failures or time
        count: of them, that after the last step among them
    """

    state_bytes: int
    bytes_per_s: float | None
    rate_from: str
    interval_s: float
    interval_from: str
    best_s: float | None
    count: int

    @property
    def each_s(self) -> float:
        """Time of one, in which nothing is trained [s]."""
        return 0.0 if self.bytes_per_s is None else self.state_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Failures:
    """The failures of a job.

    Args:
        mtbf_s: between two of them, of all systems
        restart_s: from one to the first step after it
        count: that are expected
        lost_s: work, and checkpoints, that are done again
        restarting_s: of all restarts
    """

    mtbf_s: float
    restart_s: float
    count: float
    lost_s: float
    restarting_s: float


@dataclass(frozen=True)
class CostBand:
    """Range of the cost of four fifths of jobs like this: low and high; None: no upper end, or not asked for."""

    days: tuple[float, float | None]
    mwh: tuple[float, float | None]
    price: tuple[float | None, float | None]


@dataclass(frozen=True)
class JobCost:
    """The cost of a job. All of it is modelled.

    Args:
        tokens: of the job
        systems: of the job
        work_s: of its steps, without checkpoints and failures
        expected_s: of all of it
        checkpoints, failures, workers: parts of the cost; no failures where no MTBF is given
        servers: task -> number of servers for it; empty where the system file has none
        power_w: consumer, systems at work and all servers -> power [W]
        energy_j: the same -> energy [J]
        price: of all hours of all systems; None if not asked for
        band: range of the cost, for a step that takes as long as results like it; None if not asked for
    """

    tokens: int
    systems: int
    work_s: float
    expected_s: float
    checkpoints: Checkpoints
    failures: Failures | None
    workers: InputWorkers
    servers: Mapping[str, int]
    power_w: Mapping[str, float]
    energy_j: Mapping[str, float]
    price: float | None
    band: CostBand | None = None

    @property
    def days(self) -> float:
        """Days of the job, with checkpoints and failures."""
        return self.expected_s / DAY_S

    @property
    def mwh(self) -> float:
        """Of systems and servers."""
        return math.fsum(self.energy_j.values()) / MWH_J


def job_cost(found: Estimate, asked: CostInputs, checkpoint_steps: int | None) -> JobCost:
    """The cost of the job of an estimate.

    Args:
        found: with the number of tokens of the job
        asked: prices, failures and checkpoints
        checkpoint_steps: between two checkpoints, by the params; None for none but the last

    Raises:
        EstimateError: with such failures the job does not end, or nothing is known of the time of a checkpoint
    """
    assert found.tokens is not None
    artifact, system = found.artifact, found.artifact.system
    work_s = found.tokens / found.tokens_per_s
    saved = _checkpoints(found, asked, checkpoint_steps, work_s)
    failures, expected_s = None, work_s + saved.count * saved.each_s
    if asked.mtbf_hours is not None:
        failures, expected_s = _failures(found, asked, saved, work_s)
    workers = input_workers(found, asked.worker_tokens_per_s)
    servers = {} if system.servers is None else servers_of(artifact, system.servers, workers)
    each_w = 0.0 if system.servers is None else system.servers.power_w
    power = {"systems": found.power_w, **{name: count * each_w for name, count in servers.items()}}
    # While a checkpoint is written or read, systems wait.
    at_work_s = work_s + (0.0 if failures is None else failures.lost_s)
    waiting_s = expected_s - at_work_s
    energy = {name: watts * expected_s for name, watts in power.items()}
    energy["systems"] = found.power_w * at_work_s + found.num_csx * system.idle_power_w * waiting_s
    price = None if asked.price is None else asked.price * found.num_csx * expected_s / HOUR_S
    return JobCost(
        tokens=found.tokens,
        systems=found.num_csx,
        work_s=work_s,
        expected_s=expected_s,
        checkpoints=saved,
        failures=failures,
        workers=workers,
        servers=servers,
        power_w=power,
        energy_j=energy,
        price=price,
    )


def cost_with_band(found: Estimate, asked: CostInputs, checkpoint_steps: int | None) -> JobCost:
    """The cost of the job of an estimate with its range, where one is known; arguments and errors as of `job_cost`."""
    cost = job_cost(found, asked, checkpoint_steps)
    if not found.band.is_known:
        return cost
    low = job_cost(stretched(found, found.band.low), asked, checkpoint_steps)
    try:
        high = job_cost(stretched(found, found.band.high), asked, checkpoint_steps)
    except EstimateError:
        # With longer steps there are fewer of them between failures, and it may not end.
        return replace(cost, band=CostBand((low.days, None), (low.mwh, None), (low.price, None)))
    return replace(cost, band=CostBand((low.days, high.days), (low.mwh, high.mwh), (low.price, high.price)))


def stretched(found: Estimate, factor: float) -> Estimate:
    """Return an estimate whose step takes so many times as long, with all work in it."""
    artifact = replace(found.artifact, step_cycles=round(found.artifact.step_cycles * factor))
    step = replace(
        found.step,
        spent_s={name: factor * seconds for name, seconds in found.step.spent_s.items()},
        busy_s={name: factor * seconds for name, seconds in found.step.busy_s.items()},
    )
    return replace(found, artifact=artifact, step=step)


def _checkpoints(found: Estimate, asked: CostInputs, steps: int | None, work_s: float) -> Checkpoints:
    need, system = found.artifact.memoryx, found.artifact.system
    state_bytes = need.weights_bytes + need.optimizer_bytes
    rate, rate_from = asked.checkpoint_bytes_per_s, "as --checkpoint_rate says"
    if rate is None:
        rate, rate_from = of_release(system, "checkpoint_bytes_per_s")
    best = None
    if asked.mtbf_hours is not None:
        if rate is None:
            raise EstimateError(
                f"--mtbf: must stand beside --checkpoint_rate: how fast {system.name} writes checkpoints is not known, "
                f"got {asked.mtbf_hours:g}"
            )
        best = best_interval_s(state_bytes / rate, asked.mtbf_hours * HOUR_S / found.num_csx)
    if asked.checkpoint_hours is not None:
        interval_s, interval_from = asked.checkpoint_hours * HOUR_S, "asked"
    elif steps is not None:
        interval_s, interval_from = steps * found.step_s, "params"
    elif best is not None:
        interval_s, interval_from = best, "best"
    else:
        interval_s, interval_from = work_s, "end"
    interval_s = min(interval_s, work_s)
    count = checkpoints(work_s, interval_s)
    return Checkpoints(state_bytes, rate, rate_from, interval_s, interval_from, best, count)


def _failures(found: Estimate, asked: CostInputs, saved: Checkpoints, work_s: float) -> tuple[Failures, float]:
    assert asked.mtbf_hours is not None
    mtbf_s = asked.mtbf_hours * HOUR_S / found.num_csx
    minutes = RESTART_MINUTES if asked.restart_minutes is None else asked.restart_minutes
    restart_s = 60.0 * minutes + saved.each_s
    expected_s = job_s(work_s, saved.interval_s, saved.each_s, restart_s, mtbf_s)
    if expected_s > MOST_STRETCH * work_s:
        assert saved.best_s is not None
        ends = job_s(work_s, saved.best_s, saved.each_s, restart_s, mtbf_s) <= MOST_STRETCH * work_s
        best = (
            f"--checkpoint_hours {_hours(saved.best_s)} is best" if ends else "it does not with other intervals, either"
        )
        every, each = _hours(mtbf_s), _hours(saved.interval_s + saved.each_s)
        raise EstimateError(
            f"--mtbf: must let the job end: a failure comes every {every} hours, and from checkpoint to checkpoint "
            f"there are {each}, got {asked.mtbf_hours:g}",
            best,
        )
    count = expected_s / mtbf_s
    # A restart may be cut short by the next failure.
    restarting_s = count * mtbf_s * -math.expm1(-restart_s / mtbf_s)
    lost_s = max(0.0, expected_s - work_s - saved.count * saved.each_s - restarting_s)
    return Failures(mtbf_s, restart_s, count, lost_s, restarting_s), expected_s


def _hours(seconds: float) -> str:
    hours = seconds / HOUR_S
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.2g}"
