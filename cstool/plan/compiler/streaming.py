"""Pass: weight streaming. The layout of activations, the micro-batch, the schedule of the stream.

Activations are computed again only where nothing else fits or a step is faster so, and where one sample alone is too
large even so, its tokens go through layers in parts.
"""

from __future__ import annotations

from dataclasses import replace

from cstool.foundation.words import often
from cstool.model.ir import Alternative, ExecutionMode, KernelCycles
from cstool.plan.compiler.program import Misfit, Program, memoryx_need
from cstool.plan.compiler.stream_costs import Choice, Costs
from cstool.plan.compiler.stream_plan import with_plan, without_step
from cstool.plan.compiler.stream_search import Search
from cstool.plan.timing.micro_batches import even_size

STREAMING = ExecutionMode.WEIGHT_STREAMING


def plan_streaming(program: Program) -> Program:
    """Lay out activations, choose the micro-batch, order the stream; or report the misfit.

    Raises:
        CompileError: the system has too few colors for any model
    """
    system = program.request.system
    if not program.request.considers(STREAMING):
        return program
    need = memoryx_need(program)
    if system.memoryx is None:
        misfit = Misfit(system.name, "must have MemoryX, from which weights are streamed", "a system without")
    elif need.total_bytes > system.memoryx.capacity_bytes:
        what = f"{program.graph.parameter_count:,} weights with optimizer state and gradients"
        if frozen := program.graph.parameter_count - program.graph.trained_count:
            what = f"{program.graph.trained_count:,} weights with optimizer state and gradients, {frozen:,} without"
        rule = f"must fit MemoryX of {system.name}, {system.memoryx.capacity_bytes:,} bytes"
        misfit = Misfit(what, rule, f"{need.total_bytes:,} bytes")
    else:
        search = program.kept.once(program, "streaming", lambda: Search(program))
        found = search.run(program)
        if isinstance(found, Choice):
            return _planned(program, search.costs, found)
        misfit = found
    return program.with_known(STREAMING, misfits=misfit)


def cycles_of_micro_batch(program: Program) -> tuple[tuple[int, KernelCycles], ...]:
    """Return the cycles of kernels for the requested micro-batch, recomputed no more than needed.

    Returns:
        For each kernel its repetitions and cycles; none where the micro-batch does not fit
    """
    search = Search(program)
    costs, choice = search.costs, search.first_that_fits()
    if choice is None:
        return ()
    works = enumerate(zip(costs.counts, costs.works, strict=True))
    return tuple(
        (count, costs.kernel(choice, segment, number))
        for segment, (count, kernels) in works
        for number in range(len(kernels))
    )


def choices_of_micro_batch(program: Program) -> tuple[tuple[int, Program], ...]:
    """Return the candidates of `plan_streaming` for a micro-batch of exactly `micro_batch_size` samples.

    The choices do not depend on the number of systems, nor on the number of micro-batches: layouts are compared for
    one micro-batch on one system, and for several. Only the fastest of them depends on both.

    Args:
        program: memory planned, for one micro-batch: as many samples to a system as `micro_batch_size`

    Returns:
        For each choice the cycles in which PEs are at work in a micro-batch, and the program with its plan, without a
        step; none where it does not fit
    """
    search = Search(program)
    costs = search.costs
    return tuple((costs.fabric(choice), without_step(program, costs, choice)) for choice in search.of_one_size())


def _planned(program: Program, costs: Costs, chosen: Choice) -> Program:
    planned = with_plan(program, costs, chosen)
    if (fastest := chosen.fastest) is not None:
        again = f"with --recompute fastest: micro-batches of {fastest.micro_batch_size}, activations recomputed"
        other = Alternative(STREAMING, with_plan(program, costs, fastest).step_cycles[STREAMING], again)
        planned = replace(planned, others=(*program.others, other))
    notes: tuple[str, ...] = ()
    request, size = program.request, chosen.micro_batch_size
    asked, samples = request.micro_batch_size, request.samples_per_csx
    if asked is not None and size < min(asked, samples):
        is_even = size == even_size(samples, asked)
        why = f"are cut evenly from {samples:,} samples" if is_even else "do not fit"
        who = "are asked for" if request.is_micro_batch_exact else "the file asks for"
        notes = (f"micro-batches of {size}: those of {asked} that {who} {why}",)
    if levels := chosen.memory.recompute.levels:
        notes = (
            *notes,
            f"activations are recomputed in the backward pass, {often(levels)} per layer: {chosen.why_again}",
        )
    if (parts := chosen.layout.parts) > 1:
        each = f"{chosen.layout.part.tokens_per_pe} of a PE's {chosen.layout.tokens_per_pe} tokens"
        notes = (
            *notes,
            f"a layer takes a sample in {parts} parts, {each} at a time: its weights come for each of them",
        )
    return planned.with_known(STREAMING, notes=notes)
