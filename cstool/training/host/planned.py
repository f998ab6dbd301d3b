"""The setup that a run would have on this host, of which a step is predicted."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cstool.foundation.host_memory import available_memory_bytes
from cstool.model.graphs.statistics import FLOAT32_BYTES
from cstool.model.ir import Graph
from cstool.model.optimizers import costed_optimizer, state_share
from cstool.model.params import Params
from cstool.model.sparsity import assign_groups, most_kept
from cstool.training.host.ranks import Link, RanksSetup
from cstool.training.host.step import HostRates, HostSetup
from cstool.training.host.traffic import count_traffic, planned_bytes
from cstool.training.kernels.shared_gemm import PARTS
from cstool.training.machine.grains import cores_of_rank, grain_samples, lanes_for
from cstool.training.machine.layout import Layout, lay_out
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.shards import Shards, deal_panels
from cstool.training.machine.memoryx_store import CACHED_SHARE, FILE_SHARE
from cstool.training.machine.ranks.mpi import BUSY_S
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules
from cstool.training.machine.timeline import make_timeline


def host_link(rates: HostRates) -> Link:
    """Stand-in for a link between ranks on one host: copies in memory at the rate of the page cache, either way."""
    return Link(rates.cached_bytes_per_s, both_ways=False)


def planned_ranks(
    params: Params, graph: Graph, batch_size: int, ranks: int, rates: HostRates, link: Link | None
) -> RanksSetup:
    """The setup that a run of these params would have on several ranks, as far as known without a run.

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
    shards = deal_panels(KeptModel(graph, optimizer, sparsity_rules(params, graph, KernelChooser("never"))), nodes)
    traffic = count_traffic(layout, planned_bytes(setup.densities), shards)
    setups = dealt_setups(graph, layout, setup, hosts, shards, None)
    return RanksSetup(setups, traffic, link or host_link(rates), BUSY_S, tuple(hosts))


def dealt_setups(
    graph: Graph, layout: Layout, setup: HostSetup, hosts: Sequence[int], shards: Shards, lanes: int | None
) -> tuple[HostSetup, ...]:
    """The setup of each rank: its own grains and lanes, the lanes of other ranks on its host, and its share of MemoryX.

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
    """The setup that a run of these params would have here, as far as known without a run.

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
    again = make_timeline(graph, trains=True, recomputes=always).again
    return HostSetup(
        keeps=not always,
        sharing=min(cores_of_rank(1), PARTS) if grains == 1 else 1,
        past_cache=in_file and slots * state_bytes > CACHED_SHARE * free,
        grain_samples=samples,
        grains=grains,
        lanes=lanes_for(graph, samples, grains),
        densities={name: density for name, density in densities.items() if density < 1.0},
        **by_params(params, graph, again=again, in_file=in_file),
    )


def by_params(params: Params, graph: Graph, *, again: Iterable[int], in_file: bool) -> dict[str, Any]:
    """The fields of a setup that follow from the params.

    Args:
        again: positions of the ops that run forward twice
        in_file: whether MemoryX is in a file
    """
    optimizer = costed_optimizer(params.optimizer)
    return {
        "optimizer": optimizer.name,
        "optimizer_states": state_share(optimizer, graph),
        "waits_for_norm": params.precision.gradients_wait,
        "recomputed": frozenset(graph.ops[position].name for position in again),
        "memoryx_in_file": in_file,
        "commits": in_file and params.memoryx.commit_steps > 0,
        "buffer_bytes": params.memoryx.memory if in_file else 0,
    }
