"""What this host was predicted to take for a step, beside what it took: how anyone can check the model on a machine."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from cstool.foundation.words import digits_text
from cstool.model.graphs.statistics import FLOAT32_BYTES
from cstool.model.ir import Graph
from cstool.model.optimizers import costed_optimizer, state_share
from cstool.model.params import Params
from cstool.model.sparsity import assign_groups, most_kept
from cstool.training.host.ranks import Link, RanksSetup, predict_ranks
from cstool.training.host.step import HostRates, HostSetup, HostStep, predict_step
from cstool.training.kernels.shared_gemm import PARTS
from cstool.training.machine.grains import cores_of_rank, grain_samples, lanes_for
from cstool.training.machine.host_memory import available_memory_bytes
from cstool.training.machine.layout import Layout, lay_out
from cstool.training.machine.memoryx.shards import Shards, deal_panels
from cstool.training.machine.memoryx_store import CACHED_SHARE, FILE_SHARE
from cstool.training.machine.ranks.mpi import BUSY_S
from cstool.training.machine.ranks.traffic import count_traffic, planned_bytes, present_bytes
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules
from cstool.training.machine.timeline import make_timeline
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
    """A step predicted and measured, phase by phase: of the lanes on average, and what is not hidden behind them.

    Measured are medians over the steps but the first, of a long run over the last.

    Args:
        phases: step, forward, again (where layers are recomputed), backward, rest; of several ranks those of rank 0,
            whose rest is waiting for the others, too
        wire: of several ranks, what is taken for the wire between them
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
    """Return the prediction for a run in float32 that has ended beside what it took; None if it had too few steps."""
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
    """The step of a run, of several ranks as rank 0 sees it; and what was taken for the wire between these."""
    setup = setup_of(session)
    if len(session.appliance.others.used) == 1:
        return predict_step(session.graph, rates, setup), None
    ranks = ranks_setup_of(session, rates, setup)
    kind = "hosts a wire" if ranks.link.both_ways else "ranks copies in memory"
    wire = f"between {kind} at {digits_text(ranks.link.bytes_per_s / 1e9)} GB/s"
    return predict_ranks(session.graph, rates, ranks).of(0), wire


def host_link(rates: HostRates) -> Link:
    """What stands for a link between ranks on one host: copies in memory at the rate of the page cache, either way."""
    return Link(rates.cached_bytes_per_s, both_ways=False)


def setup_of(session: Session) -> HostSetup:
    """The setup of a run."""
    cluster, arrays = session.appliance.training_cluster, session.appliance.memoryx.arrays
    return _setup(
        session.params,
        session.graph,
        cluster.plan.timeline.again,
        keeps=cluster.plan.keeps,
        sharing=cluster.sharing,
        in_file=arrays.file is not None,
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
    )


def ranks_setup_of(session: Session, rates: HostRates, setup: HostSetup) -> RanksSetup:
    """The setup of a run on several ranks, of which `setup` is that of rank 0 as if it were alone."""
    appliance = session.appliance
    layout, names = appliance.training_cluster.layout, [use.host for use in appliance.others.used]
    hosts = [names.index(name) for name in names]
    shards = appliance.memoryx.arrays.shards
    traffic = count_traffic(layout, present_bytes(appliance.memoryx), shards)
    wire = session.training.wire
    link = host_link(rates) if wire is None else Link(wire.bytes_per_s, wire.latency_s)
    setups = _dealt(session.graph, layout, setup, hosts, shards, session.order.lanes)
    return RanksSetup(setups, traffic, link, BUSY_S, tuple(hosts))


def planned_ranks(
    params: Params, graph: Graph, batch_size: int, ranks: int, rates: HostRates, link: Link | None
) -> RanksSetup:
    """The setup that a run of these params would have on several ranks, as far as it can be told without one.

    Args:
        ranks: at most as many as systems
        link: of hosts like this one, with a rank on each; None for all ranks on this one
    """
    setup = planned_setup(params, graph, batch_size)
    layout = lay_out(
        graph,
        grain=setup.grain_samples,
        grains=setup.grains,
        num_csx=params.num_csx,
        trains=True,
        memory_bytes=[sys.maxsize] * ranks,
        recompute="always" if params.activation_checkpointing == "always" else "never",
    )
    hosts = [0] * ranks if link is None else list(range(ranks))
    optimizer = costed_optimizer(params.optimizer)
    nodes = min(ranks, params.memoryx.nodes or ranks)
    shards = deal_panels(graph, optimizer, sparsity_rules(params, graph, KernelChooser("never")), nodes)
    traffic = count_traffic(layout, planned_bytes(setup.densities), shards)
    setups = _dealt(graph, layout, setup, hosts, shards, None)
    return RanksSetup(setups, traffic, link or host_link(rates), BUSY_S, tuple(hosts))


def _dealt(
    graph: Graph, layout: Layout, setup: HostSetup, hosts: Sequence[int], shards: Shards, lanes: int | None
) -> tuple[HostSetup, ...]:
    """The setup of each rank: its own grains and lanes, those of the other ranks on its host, and its share of MemoryX.

    Args:
        hosts: by rank the number of its host
        lanes: of each rank, at most; None to choose as runs do
    """
    grains = [len(layout.grains(rank)) for rank in range(layout.ranks)]
    slots = [sum(layout.deal.slots[system] for system in layout.systems(rank)) for rank in range(layout.ranks)]
    each = [
        max(1, min(lanes or lanes_for(graph, layout.plan.samples, own, hosts.count(host)), room))
        for own, room, host in zip(grains, slots, hosts, strict=True)
    ]
    on_host = {host: sum(own for own, other in zip(each, hosts, strict=True) if other == host) for host in set(hosts)}
    kept = {
        host: sum(size for size, other in zip(shards.shard_bytes, hosts, strict=False) if other == host)
        for host in on_host
    }
    total = max(1, sum(shards.shard_bytes))
    return tuple(
        replace(
            setup,
            grains=dealt,
            lanes=own,
            lanes_beside=on_host[host] - own,
            memoryx_share=kept[host] / total,
            # All meet at rank 0.
            met_grains=0 if rank else setup.grains,
        )
        for rank, (dealt, own, host) in enumerate(zip(grains, each, hosts, strict=True))
    )


def planned_setup(params: Params, graph: Graph, batch_size: int) -> HostSetup:
    """The setup that a run of these params would have here, as far as it can be told without one.

    Sparse kernels are taken to be the faster ones, and activations to fit.
    """
    samples = grain_samples(graph, batch_size)
    grains = batch_size // samples
    groups = assign_groups(params.sparsity, graph, params.sparsity_place) if params.sparsity else {}
    densities = {
        name: most_kept(params.sparsity[number], graph.weights[name].matrix_shape, params.loop.max_steps)
        / graph.weights[name].size
        for name, number in groups.items()
    }
    states = state_share(costed_optimizer(params.optimizer), graph)
    kept = sum(
        weight.size * densities.get(name, 1.0) * (1 if weight.frozen else 1 + states)
        for name, weight in graph.weights.items()
    )
    state_bytes = FLOAT32_BYTES * kept
    free, chosen = available_memory_bytes(), params.memoryx.store
    in_file = chosen == "file" or (chosen == "auto" and state_bytes > FILE_SHARE * free)
    slots = 2 if in_file and params.memoryx.commit_steps > 0 else 1
    always = params.activation_checkpointing == "always"
    return _setup(
        params,
        graph,
        make_timeline(graph, trains=True, recomputes=always).again,
        keeps=not always,
        sharing=min(cores_of_rank(1), PARTS) if grains == 1 else 1,
        in_file=in_file,
        past_cache=in_file and slots * state_bytes > CACHED_SHARE * free,
        grain_samples=samples,
        grains=grains,
        lanes=lanes_for(graph, samples, grains),
        densities={name: density for name, density in densities.items() if density < 1.0},
    )


def _setup(
    params: Params,
    graph: Graph,
    again: frozenset[int],
    *,
    keeps: bool,
    sharing: int,
    in_file: bool,
    past_cache: bool,
    grain_samples: int,
    grains: int,
    lanes: int,
    densities: dict[str, float],
    waves: int = 1,
) -> HostSetup:
    """The setup with what follows from the params alone; again: positions of ops that run forward twice."""
    optimizer = costed_optimizer(params.optimizer)
    return HostSetup(
        grain_samples=grain_samples,
        grains=grains,
        lanes=lanes,
        densities=densities,
        waves=waves,
        past_cache=past_cache,
        optimizer=optimizer.name,
        optimizer_states=state_share(optimizer, graph),
        waits_for_norm=params.precision.gradients_wait,
        recomputed=frozenset(graph.ops[position].name for position in again),
        keeps=keeps,
        sharing=sharing,
        memoryx_in_file=in_file,
        commits=in_file and params.memoryx.commit_steps > 0,
        buffer_bytes=params.memoryx.memory if in_file else 0,
    )
