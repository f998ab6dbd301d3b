"""The predicted time of a step on this host beside the measured time: a check of the model on any machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from cstool.foundation.words import digits_text
from cstool.training.host.planned import by_params, dealt_setups, host_link
from cstool.training.host.ranks import Link, RanksSetup, predict_ranks
from cstool.training.host.step import HostRates, HostSetup, HostStep, predict_step
from cstool.training.host.traffic import count_traffic, present_bytes
from cstool.training.machine.ranks.mpi import BUSY_S
from cstool.training.run.session import Session

FEWEST_STEPS = 3
"""of a run whose time is compared: the first one meets cold caches"""


@dataclass(frozen=True)
class PhaseTimes:
    """Of a phase of a step [s]."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one; 0 where nothing was measured."""
        return self.predicted / self.measured - 1 if self.measured else 0.0


@dataclass(frozen=True)
class HostComparison:
    """A step predicted and measured, phase by phase: of the lanes on average, and the time not hidden behind them.

    Measured are medians over the steps but the first, of a long run over the last.

    Args:
        phases: step, forward, again (recomputed layers), backward, rest; with several ranks those of rank 0 alone, with
            its waits for the other ranks in the rest
        wire: of several ranks, the assumed wire between them
    """

    phases: Mapping[str, PhaseTimes]
    wire: str | None = None

    def line(self) -> str:
        """Return it as the log has it."""
        step = self.phases["step"]
        parts = [
            f"{name} {times.predicted:.3g} / {times.measured:.3g} s"
            for name, times in self.phases.items()
            if name != "step" and (times.predicted or times.measured)
        ]
        return (
            f"Time per step on this host, predicted / measured: {step.predicted:.3g} / {step.measured:.3g} s "
            f"({step.error:+.0%}); {', '.join(parts)}{'' if self.wire is None else f'; {self.wire}'}."
        )


def compare(session: Session, rates: HostRates) -> HostComparison | None:
    """Return the prediction for an ended run in float32 beside its measured times; None if it had too few steps."""
    training = session.training
    if len(training.step_seconds) < FEWEST_STEPS:
        return None
    predicted, wire = _predicted(session, rates)
    totals = training.phase_seconds
    phases = {name: median(b[name] - a[name] for a, b in pairwise(totals)) for name in totals[0]}
    step = training.median_step_s
    measured = {"step": step, **phases, "rest": max(0.0, step - sum(phases.values()))}
    return HostComparison(
        {name: PhaseTimes(getattr(predicted, f"{name}_s"), seconds) for name, seconds in measured.items()}, wire
    )


def _predicted(session: Session, rates: HostRates) -> tuple[HostStep, str | None]:
    """The predicted step of a run, of several ranks as rank 0 sees it; and the assumed wire between these."""
    setup = setup_of(session)
    if len(session.appliance.others.used) == 1:
        return predict_step(session.graph, rates, setup), None
    ranks = ranks_setup_of(session, rates, setup)
    kind = "hosts a wire" if ranks.link.both_ways else "ranks copies in memory"
    wire = f"between {kind} at {digits_text(ranks.link.bytes_per_s / 1e9)} GB/s"
    return predict_ranks(session.graph, rates, ranks).of(0), wire


def setup_of(session: Session) -> HostSetup:
    """The setup of a run."""
    cluster, arrays = session.appliance.training_cluster, session.appliance.memoryx.arrays
    again = cluster.plan.timeline.again
    return HostSetup(
        keeps=cluster.plan.keeps,
        sharing=cluster.sharing,
        past_cache=arrays.file is not None and arrays.file.direct,
        grain_samples=cluster.plan.samples,
        grains=cluster.grains,
        lanes=len(cluster.lanes),
        waves=cluster.waves,
        densities={
            name: sparse.density
            for name, sparse in arrays.sparse.items()
            if all(sparse.choice(panel).forward for panel in sparse.panels)
        },
        **by_params(session.params, session.graph, again=again, in_file=arrays.file is not None),
    )


def ranks_setup_of(session: Session, rates: HostRates, setup: HostSetup) -> RanksSetup:
    """The setup of a run on several ranks; `setup` is the setup of rank 0 as if it were alone."""
    appliance = session.appliance
    layout, names = appliance.training_cluster.layout, [use.host for use in appliance.others.used]
    hosts = [names.index(name) for name in names]
    shards = appliance.memoryx.arrays.shards
    traffic = count_traffic(layout, present_bytes(appliance.memoryx), shards)
    wire = session.training.wire
    link = host_link(rates) if wire is None else Link(wire.bytes_per_s, wire.latency_s)
    setups = dealt_setups(session.graph, layout, setup, hosts, shards, session.order.lanes)
    return RanksSetup(setups, traffic, link, BUSY_S, tuple(hosts))
