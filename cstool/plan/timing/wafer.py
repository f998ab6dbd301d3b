"""An artifact as a step of the modelled cluster: its kernels as ops of the stream, its system as resources."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from cstool.model.graphs.statistics import count_statistics
from cstool.model.ir import BOUNDS, Artifact, FusedKernel, KernelCycles, PhaseCycles, Segment, StreamedKernel, share_met
from cstool.model.system import System
from cstool.plan.timing import resources as on
from cstool.plan.timing.cluster import Step, held_up, step_of
from cstool.plan.timing.hosts import Feed, feed_of
from cstool.plan.timing.pe import input_bytes
from cstool.plan.timing.schedule import NUMBER_BYTES, Cluster, Schedule, Section, StreamedOp
from cstool.plan.timing.stragglers import slowest_of


def tree_stages(num_csx: int, fan_out: int) -> int:
    """Stages of SwarmX between MemoryX and so many systems.

    Source: a node broadcasts to, and reduces from, four: weight-streaming white paper (2021), section 6.4, as quoted.

    >>> [tree_stages(n, 4) for n in (1, 2, 4, 5, 16, 192)]
    [0, 1, 1, 2, 2, 4]
    """
    stages, reached = 0, 1
    while reached < num_csx:
        stages, reached = stages + 1, reached * fan_out
    return stages


def schedule_of(artifact: Artifact, update_ops: int) -> Schedule:
    """The kernels of an artifact for weight streaming as ops of the stream, and the resources of its systems.

    Args:
        update_ops: operations of an update per weight
    """
    system, plan, need = artifact.system, artifact.streaming, artifact.memoryx
    memoryx, swarmx = system.memoryx, system.swarmx
    assert memoryx is not None
    assert plan is not None
    # One link more than stages: the last one leads to the system, or the only one from MemoryX.
    hops = 1 if swarmx is None else 1 + tree_stages(artifact.num_csx, swarmx.fan_out)
    cluster = Cluster(
        memory_bytes_per_s=memoryx.bytes_per_s,
        update_s_per_weight=update_ops / memoryx.flops,
        link_bytes_per_s=system.io_bytes_per_s,
        io_bytes_per_s=system.io_bytes_per_s,
        hops_s=hops * (0.0 if swarmx is None else swarmx.hop_s),
        prefetch_bytes=plan.prefetch_bytes,
        optimizer_states=need.optimizer_bytes / need.gradient_bytes if need.gradient_bytes else 0.0,
        waits_for_norm=artifact.waits_for_norm,
        straggle=_straggle(system, artifact.num_csx),
        reduce_bytes_per_s=None if swarmx is None or artifact.num_csx == 1 else swarmx.reduce_bytes_per_s,
        norm_s=0.0 if system.software is None else system.software.norm_s,
    )
    sections = tuple(
        Section(
            tuple(
                _op(system.clock_hz, segment, kernel, streamed)
                for kernel, streamed in zip(kernels, planned, strict=True)
            ),
            segment.count,
            max(streamed.cycles.recomputes for streamed in planned),
            tuple(tuple(segment.name_of(kernel.name, n) for kernel in kernels) for n in range(segment.count)),
        )
        for segment, kernels, planned in zip(artifact.graph.segments, artifact.kernels, plan.kernels, strict=True)
    )
    size = artifact.micro_batch_size * input_bytes(artifact.graph.inputs, artifact.operand_bits)
    return Schedule(sections, cluster, plan.micro_batches, size, _feed(artifact, artifact.micro_batch_size))


def _straggle(system: System, num_csx: int) -> float:
    """Delay of the slowest of so many systems over the mean, relative to the mean."""
    return 0.0 if system.swarmx is None else slowest_of(num_csx, system.swarmx.straggler_share)


def _feed(artifact: Artifact, samples: int) -> Feed | None:
    """Times of the hosts of a system for so many samples; None if they take no time."""
    software = artifact.system.software
    if software is None:
        return None
    tokens = artifact.tokens if artifact.tokens > 1 else 0
    return feed_of(software, samples * tokens, samples * input_bytes(artifact.graph.inputs, artifact.operand_bits))


def _op(clock_hz: float, segment: Segment, kernel: FusedKernel, streamed: StreamedKernel) -> StreamedOp:
    def seconds(phase: PhaseCycles) -> float:
        return phase.fabric_cycles / clock_hz

    cycles = streamed.cycles
    # A weight that an earlier segment has is tied: it is updated there, once.
    trained = (weight for weight in segment.weights if not weight.frozen)
    own = sum(weight.size for weight in trained if weight.name in kernel.weights)
    return StreamedOp(
        name=kernel.name,
        forward_s=seconds(cycles.forward),
        delta_s=seconds(cycles.delta),
        gradient_s=seconds(cycles.gradient),
        weight_bytes=streamed.stream_bytes,
        gradient_bytes=streamed.gradient_bytes,
        weights=min(own, streamed.weight_count),
        streams_for_delta=cycles.delta.ingress > 0,
        parts=streamed.parts,
    )


def cluster_step(artifact: Artifact, update_ops: int) -> Step:
    """Time of a step on all systems that an artifact is for, with MemoryX and SwarmX around them.

    Args:
        update_ops: operations of an update per weight; unused for a pipelined model, whose artifact has the cycles
    """
    if artifact.pipelined is not None:
        return _pipelined_step(artifact)
    return step_of(schedule_of(artifact, update_ops))


def _pipelined_step(artifact: Artifact) -> Step:
    """Time of a pipelined step: of one system, and of the sums of gradients over all of them.

    Weights and their updates are on the wafers. Where there are several, gradients leave every system after its last
    sample, are reduced by SwarmX, and the sums come back; each system then makes the same update. They wait for the
    slowest before.
    """
    plan, system = artifact.pipelined, artifact.system
    assert plan is not None
    samples, clock_hz = artifact.batch_size // artifact.num_csx, system.clock_hz
    per_replica = -(-samples // (plan.replicas[0] * plan.replicas[1]))
    beat_s = plan.stages[plan.bottleneck].cycles.total / clock_hz
    inputs_s = samples * input_bytes(artifact.graph.inputs, artifact.operand_bits) / system.io_bytes_per_s
    straggle, feed = _straggle(system, artifact.num_csx), _feed(artifact, samples)
    work_s, filling_s = per_replica * beat_s, artifact.filling_beats * beat_s
    update_s = plan.update_cycles / clock_hz
    exchange_s, hops_s = exchange(system, artifact.graph.trained_count, artifact.num_csx)
    busy = {name: 0.0 for name in on.ALL if feed is not None or name not in on.HOSTS}
    busy[on.COMPUTE] = work_s
    busy[on.WORKERS] = inputs_s
    if feed is not None:
        busy |= feed.busy_s()
    busy[on.INGRESS] = inputs_s + exchange_s
    busy[on.EGRESS] = busy[on.REDUCE] = busy[on.BROADCAST] = exchange_s
    spent = {
        on.COMPUTE: work_s,
        on.STRAGGLERS: straggle * (work_s + filling_s + update_s + exchange_s),
        on.FILLING: filling_s,
        # Where samples come slower than the stages take them, the rest of the time is the links'.
        on.INGRESS: max(0.0, inputs_s - work_s - filling_s),
        on.UPDATING: update_s,
        on.EGRESS: exchange_s,
        on.LATENCY: hops_s,
    }
    one_by_one = samples * sum(stage.cycles.total for stage in plan.stages) / clock_hz
    hosts_s = 0.0 if feed is None else feed.workers_s + feed.servers_s + feed.step_s
    serial_s = (1 + straggle) * (one_by_one + update_s + 2 * inputs_s + 4 * exchange_s) + hops_s + hosts_s
    spent = {name: seconds for name, seconds in spent.items() if seconds > 0}
    return Step(held_up(spent, feed), busy, serial_s)


def exchange(system: System, weights: int, num_csx: int) -> tuple[float, float]:
    """Time of systems to add up gradients that are on them: on a link, and for the hops of SwarmX [s].

    Example: of a million weights, 4 MB go up and down a link of 150 GB/s; two stages are three hops each way.

    >>> from cstool.model.system import load_system
    >>> [f"{1e6 * seconds:.1f} us" for seconds in exchange(load_system("cs2"), 1_000_000, 16)]
    ['26.7 us', '30.0 us']
    >>> exchange(load_system("cs2"), 1_000_000, 1)
    (0.0, 0.0)
    """
    if num_csx == 1:
        return 0.0, 0.0
    swarmx = system.swarmx
    hops_s = 0.0 if swarmx is None else 2 * (tree_stages(num_csx, swarmx.fan_out) + 1) * swarmx.hop_s
    # The way up and the way down overlap but for the hops: sums come back while later gradients still leave.
    return weights * NUMBER_BYTES / system.io_bytes_per_s, hops_s


def useful_flops(artifact: Artifact) -> int:
    """Return the floating-point operations of the products of a step, of all systems: none twice, no zeros.

    Forward once and backward twice, as the statistics of the model count them; recomputation does not count.
    A pipelined artifact knows no zeros.
    """
    flops = count_statistics(artifact.graph).sample_flops
    spared = sum(2 * artifact.tokens * zeros * share * products for zeros, share, products in _zeros(artifact))
    return artifact.batch_size * (flops.total - int(spared))


def zero_weights(artifact: Artifact) -> int:
    """Number of weights that are zero and not streamed; a pipelined artifact knows none."""
    return sum(zeros for zeros, _, _ in _zeros(artifact))


def kernel_share_met(segment: Segment, kernel: FusedKernel) -> Fraction:
    """Return the share of the matrices of a kernel that a token is multiplied with; see `share_met`."""
    shapes = {tensor.name: tensor.shape for tensor in segment.tensors}
    return min(share_met(op, shapes) for op in segment.ops if op.name in kernel.ops)


def _zeros(artifact: Artifact) -> Iterator[tuple[int, Fraction, int]]:
    """Yield per kernel the zeros of its weights in all layers, the share that a token meets, and their products."""
    for segment, kernel, streamed in artifact.streamed():
        # Tied weights are dense, and of another segment.
        dense = sum(weight.size for weight in segment.weights if weight.name in kernel.weights)
        if zeros := max(0, dense - streamed.weight_count):
            cycles = streamed.cycles
            products = 1 + (cycles.delta.ingress > 0) + (cycles.gradient.egress > 0)
            yield segment.count * zeros, kernel_share_met(segment, kernel), products


def limit_shares(artifact: Artifact) -> dict[str, float]:
    """Share of each limit in the modelled cycles of the kernels of a step."""
    kernels = [(segment.count, streamed.cycles) for segment, _, streamed in artifact.streamed()]
    if artifact.pipelined is not None:
        kernels = [(1, stage.cycles) for stage in artifact.pipelined.stages]
    return shares_of(kernels)


def shares_of(kernels: Iterable[tuple[int, KernelCycles]]) -> dict[str, float]:
    """Share of each limit in the modelled cycles of kernels, each repeated so many times."""
    found = dict.fromkeys(BOUNDS, 0)
    for count, cycles in kernels:
        for times, phase in ((1 + cycles.recomputes, cycles.forward), (1, cycles.delta), (1, cycles.gradient)):
            found[phase.bound] += count * times * phase.cycles
    total = sum(found.values()) or 1
    return {bound: cycles / total for bound, cycles in found.items()}
