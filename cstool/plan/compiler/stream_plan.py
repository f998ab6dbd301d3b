"""Weight streaming: the plan of a choice, kernel by kernel."""

from dataclasses import replace
from types import MappingProxyType

from cstool.foundation.errors import CompileError
from cstool.model.ir import ExecutionMode, StreamedKernel, StreamingPlan
from cstool.plan.compiler.artifact import with_step
from cstool.plan.compiler.program import Program
from cstool.plan.compiler.stream_costs import Choice, Costs
from cstool.plan.timing.pe import ceil_div

COLORS = (
    "weights",
    "partial sums, even columns",
    "partial sums, odd columns",
    "deltas",
    "gradient sums, even rows",
    "gradient sums, odd rows",
    "keys and values, even rows",
    "keys and values, odd rows",
    "statistics",
)
"""transfers between PEs, each on a color of its own; sums and rings change color from PE to PE"""
STREAMING = ExecutionMode.WEIGHT_STREAMING


def with_plan(program: Program, costs: Costs, choice: Choice) -> Program:
    """Return the program with the plan of a choice, and its simulated step time.

    Raises:
        CompileError: the system has too few colors for any model
    """
    return with_step(without_step(program, costs, choice), STREAMING)


def without_step(program: Program, costs: Costs, choice: Choice) -> Program:
    """Return the program with the plan of a choice; see `with_plan`."""
    planned = program.with_known(STREAMING, recompute=choice.memory.recompute, micro_batches=choice.micro_batch_size)
    return replace(planned, streaming=_plan(program, costs, choice))


def _plan(program: Program, costs: Costs, choice: Choice) -> StreamingPlan:
    system, stream = program.request.system, costs.stream
    if len(COLORS) > system.links.colors - system.links.io_colors:
        raise CompileError(
            f"{system.name}: links.colors must leave {len(COLORS)} colors for weight streaming beside those of input "
            f"and output, got {system.links.colors} and {system.links.io_colors}"
        )
    layout, memory = choice.layout, choice.memory
    needs = iter(memory.needs)
    kernels: list[tuple[StreamedKernel, ...]] = []
    streamed_bytes = gradient_bytes = 0
    for number, (segment, works) in enumerate(zip(program.graph.segments, costs.works, strict=True)):
        parts = memory.parts_in(number, layout)
        planned = tuple(
            StreamedKernel(
                name=work.kernel.name,
                inputs_per_pe=int(ceil_div(work.inputs, layout.columns)),
                outputs=work.outputs,
                axpys_per_weight=layout.rows * layout.groups if work.matrix_elements else 0,
                weight_count=work.streamed_elements,
                stream_bytes=parts * work.stream_bytes(stream),
                gradient_bytes=parts * work.gradient_elements(choice.micro_batch_size) * stream.gradient_bytes,
                cycles=costs.kernel(choice, number, index),
                sram_bytes=next(needs).total_bytes(layout),
                parts=parts,
            )
            for index, work in enumerate(works)
        )
        for kernel, work in zip(planned, works, strict=True):
            # A micro-batch streams weights forward, again, and for the delta.
            passes = 1 + kernel.cycles.recomputes + work.streams_for_delta
            streamed_bytes += segment.count * kernel.stream_bytes * passes
            gradient_bytes += segment.count * kernel.gradient_bytes
        kernels.append(planned)
    micro_batches = costs.micro_batches(choice.micro_batch_size)
    fullest = memory.fullest(layout)
    # Two rows of W lie over all columns, in any layout.
    widest = max(work.inputs for works in costs.works for work in works)
    return StreamingPlan(
        layout=layout,
        kernels=tuple(kernels),
        sram=memory.account(fullest, layout),
        fullest_kernel=fullest.work.kernel.name,
        colors=MappingProxyType({name: color for color, name in enumerate(COLORS)}),
        prefetch_bytes=2 * stream.weight_bytes * widest,
        micro_batches=micro_batches,
        streamed_bytes=micro_batches * streamed_bytes,
        gradient_bytes=micro_batches * gradient_bytes,
    )
