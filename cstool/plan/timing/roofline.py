"""Roofline: products in the phases of kernels per byte that crosses the edge of a wafer, and their rate.

A phase uses the links one way only: forward and delta bring weights in, gradients go out. Useful work is the
products of the model: nothing twice, no zeros. Kernels without products have nothing to show here.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (2009); memory is MemoryX.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cstool.model.ir import Artifact, KernelKind, Pairs, work_of
from cstool.plan.timing.pe import input_bytes
from cstool.plan.timing.schedule import NUMBER_BYTES
from cstool.plan.timing.wafer import kernel_share_met, useful_flops

WHOLE_STEP = "step"
"""the phase that all of them make together"""
_PRODUCTS = (KernelKind.MATMUL, KernelKind.LOSS)


@dataclass(frozen=True)
class Load:
    """A phase of a kernel on one system.

    Args:
        name: of the kernel, `{n}` for the number of its layer
        phase: "forward", "delta" or "gradient", or "step" for all of it
        flops: useful ones, of a micro-batch [FLOP]
        edge_bytes: that cross the edge of the wafer meanwhile, the busier way; 0 if none do
        seconds: that it takes, as modelled [s]
        times: in a step

    Example: 6 GFLOP in 2 ms, while 3 MB of weights come in.

    >>> load = Load("ffn", "forward", flops=6_000_000_000, edge_bytes=3_000_000, seconds=2e-3)
    >>> load.flops_per_s, load.flops_per_byte
    (3000000000000.0, 2000.0)
    """

    name: str
    phase: str
    flops: int
    edge_bytes: int
    seconds: float
    times: int = 1

    @property
    def flops_per_s(self) -> float:
        """While it runs."""
        return self.flops / self.seconds

    @property
    def flops_per_byte(self) -> float | None:
        """None where no byte crosses the edge."""
        return self.flops / self.edge_bytes if self.edge_bytes else None


def kernel_loads(artifact: Artifact) -> tuple[Load, ...]:
    """Return the phases of kernels with products, in the order of the stream; none of a pipelined artifact.

    Pipelined, weights stay where they are, and no kernel has the wafer for itself.
    """
    return tuple(_loads(artifact))


def step_load(artifact: Artifact) -> Load:
    """Return a whole step of one system."""
    plan = artifact.streaming
    graph = artifact.graph
    inputs = artifact.batch_size // artifact.num_csx * input_bytes(graph.inputs, artifact.operand_bits)
    if plan is not None:
        crossing = max(plan.streamed_bytes + inputs, plan.gradient_bytes)
    else:
        # Gradients leave, and their sums come back, where there are several systems.
        crossing = inputs + graph.trained_count * NUMBER_BYTES * (artifact.num_csx > 1)
    flops = useful_flops(artifact) // artifact.num_csx
    return Load(graph.name, WHOLE_STEP, flops, crossing, artifact.step_s)


def _loads(artifact: Artifact) -> Iterator[Load]:
    samples, clock_hz = artifact.micro_batch_size, artifact.system.clock_hz
    for segment, kernel, streamed in artifact.streamed():
        assert artifact.streaming is not None
        times = segment.count * artifact.streaming.micro_batches
        forward = backward = 0
        if kernel.kind in _PRODUCTS:
            own = (weight for weight in segment.weights if weight.name in kernel.weights)
            vectors = sum(weight.size for weight in own if len(weight.shape) == 1)
            forward = backward = 2 * samples * artifact.tokens * (streamed.weight_count - vectors)
            forward = backward = int(forward * kernel_share_met(segment, kernel))
        elif kernel.kind is KernelKind.ATTENTION:
            shapes = {tensor.name: tensor.shape for tensor in segment.tensors}
            ops = (op for op in segment.ops if op.name in kernel.ops)
            work = (item for op in ops for item in work_of(op, shapes) if isinstance(item, Pairs))
            # Forward the scores and the context, two products; backward two for each of them.
            forward = sum(2 * 2 * samples * item.pairs * item.width for item in work)
            backward = 2 * forward
        cycles = streamed.cycles
        into = streamed.stream_bytes
        phases = (
            ("forward", forward, into, cycles.forward),
            # A product whose inputs need no delta streams nothing for it.
            ("delta", backward if cycles.delta.ingress or not into else 0, into, cycles.delta),
            ("gradient", backward if into else 0, streamed.gradient_bytes, cycles.gradient),
        )
        for phase, flops, edge_bytes, of_phase in phases:
            if flops and of_phase.cycles:
                yield Load(kernel.name, phase, flops, edge_bytes, of_phase.cycles / clock_hz, times)
