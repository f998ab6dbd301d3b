"""Steps before a change of masks by gradients: gradients of zero weights are computed, and leave the wafer, too.

RigL lets weights come in where the gradient is largest, so a step before an update needs the gradients of all weights
of its group, zeros included. Forward and for the delta, weights are as sparse as in any step: only the gradient's own
products, their sums over PEs and the elements that leave the wafer are as for a dense matrix.

Source: Evci et al., "Rigging the Lottery", arXiv 1911.11134, section 3: dense gradients only where masks change. That
the wafer computes them in the step before an update, and in no other, is this project's reading.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Unpack

from cstool.model.ir import Artifact, MatMul, Segment, StreamedKernel
from cstool.model.params import Params
from cstool.model.system import System
from cstool.plan.compiler.compile import KERNEL_PASSES, Options, make_program, run_passes
from cstool.plan.compiler.kernel_work import KernelWork, kernel_works
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.streaming import Stream, hop_latency_cycles, stream_of, streamed_phases


def with_dense_gradients(
    params: Params, system: System, artifact: Artifact, names: Collection[str], **options: Unpack[Options]
) -> Artifact:
    """Return an artifact for weight streaming whose kernels make all gradients of some sparse weights.

    Its plan is otherwise the same. It does not run: it is for the time of such a step.

    Args:
        params, system, options: that the artifact was compiled from
        artifact: with a plan for weight streaming
        names: of the weights, for each repetition of a segment
    """
    plan = artifact.streaming
    assert plan is not None
    program = run_passes(make_program(params, system, **options), KERNEL_PASSES)
    pe, stream = Pe(system, artifact.operand_bits), stream_of(system, artifact.operand_bits)
    more = 0
    kernels: list[tuple[StreamedKernel, ...]] = []
    for number, (segment, works) in enumerate(zip(program.graph.segments, kernel_works(program), strict=True)):
        kept = program.nonzeros[number] if program.nonzeros else {}
        planned = []
        for work, kernel in zip(works, plan.kernels[number], strict=True):
            zeros = _zeros(segment, work, kept, names)
            grown = _with_gradients(pe, stream, artifact, work, kernel, zeros) if zeros else kernel
            more += segment.count * (grown.gradient_bytes - kernel.gradient_bytes)
            planned.append(grown)
        kernels.append(tuple(planned))
    gradient_bytes = plan.gradient_bytes + plan.micro_batches * more
    return replace(artifact, streaming=replace(plan, kernels=tuple(kernels), gradient_bytes=gradient_bytes))


def _zeros(segment: Segment, work: KernelWork, kept: Mapping[str, int], names: Collection[str]) -> int:
    """Number of weights of a kernel that are zero and get a gradient; of repetitions that differ, the mean."""
    found = 0
    for weight in segment.weights:
        if weight.name in work.kernel.weights and weight.name in kept and not weight.frozen:
            times = sum(segment.name_of(weight.name, repetition) in names for repetition in range(segment.count))
            found += (weight.size - kept[weight.name]) * times // segment.count
    return 0 if work.is_frozen else found


def _with_gradients(
    pe: Pe, stream: Stream, artifact: Artifact, work: KernelWork, kernel: StreamedKernel, zeros: int
) -> StreamedKernel:
    plan = artifact.streaming
    assert plan is not None
    items = [_all_trained(item, zeros) if isinstance(item, MatMul) else item for item in work.work]
    layout = plan.layout.part if kernel.parts > 1 else plan.layout
    phases = streamed_phases(
        pe,
        items,
        layout,
        artifact.micro_batch_size,
        stream,
        needs_delta=work.needs_delta,
        tokens=artifact.graph.tokens,
    )
    gradient = phases.gradient.phase(hop_latency_cycles(pe, layout)).times(kernel.parts)
    leaving = kernel.gradient_bytes + kernel.parts * zeros * stream.gradient_bytes
    return replace(kernel, cycles=replace(kernel.cycles, gradient=gradient), gradient_bytes=leaving)


def _all_trained(item: MatMul, zeros: int) -> MatMul:
    """Return a product with gradients of so many zeros more.

    >>> item = _all_trained(MatMul(tokens=3, inputs=4, outputs=10, nonzeros=20), 20)
    >>> item.weights, item.trained_part.weights
    (20, 40)
    """
    part = item.trained_part
    if part is None:
        return item
    return replace(item, trained=part.outputs, trained_nonzeros=part.weights + zeros)
