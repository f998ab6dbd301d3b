"""A program in words, for `--print_after`: its contents after a pass, one line per thing."""

from collections.abc import Iterator

from cstool.model.ir import ExecutionMode, Op
from cstool.plan.compiler.program import Program, op_of


def program_text(program: Program) -> str:
    """Return the contents of a program as text, ending in a newline."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    graph = program.graph
    inputs = ", ".join(f"{tensor.name} {_shape(tensor.shape)} {tensor.dtype}" for tensor in graph.inputs)
    yield f"graph {graph.name}: {inputs} -> {', '.join(loss.name for loss in graph.losses)}"
    for number, segment in enumerate(graph.segments):
        yield f"segment {number} x {segment.count}"
        shapes = {tensor.name: tensor.shape for tensor in segment.tensors}
        if not program.kernels:
            for op in segment.ops:
                yield f"  {_op(op, shapes)}"
        for kernel in program.kernels[number] if program.kernels else ():
            yield f"  kernel {kernel.kind} {kernel.name}"
            for name in kernel.ops:
                yield f"    {_op(op_of(segment, name), shapes)}"
            if kernel.keeps:
                yield f"    keeps {', '.join(kernel.keeps)}"
        if program.lives:
            for life in program.lives[number]:
                bits = "operand" if life.is_operand else "32 bits"
                yield f"  alive {life.start:>3} .. {life.stop:<3} {life.name} ({life.width:,} per token, {bits})"
    if program.streaming is not None:
        plan = program.streaming
        size, layout = program.micro_batches[ExecutionMode.WEIGHT_STREAMING], plan.layout
        where = f"{layout.groups} x {layout.columns} columns, {layout.rows} rows, {layout.tokens_per_pe} tokens per PE"
        where += f" in {layout.parts} parts" if layout.parts > 1 else ""
        yield f"weight_streaming: {plan.micro_batches} x {size} samples, {where}"
        for number, kernels in enumerate(plan.kernels):
            for streamed in kernels:
                yield f"  segment {number} {streamed.name}: {streamed.cycles.total:,} cycles, {streamed.sram_bytes:,} B"
    if program.pipelined is not None:
        placed = program.pipelined
        columns, rows = placed.replicas
        yield f"pipelined: {columns} x {rows} of {placed.replica_width} x {placed.replica_height} PEs"
        for stage in placed.stages:
            r = stage.region
            yield f"  {stage.name}: {r.width} x {r.height} at ({r.x}, {r.y}), {stage.cycles.total:,} cycles"
        for route in placed.routes:
            between = f"{route.source} -> {route.target}"
            yield f"  route {route.kind} {route.name}: {between}, color {route.color}, {route.lanes} lanes"
    for mode, misfit in program.misfits.items():
        yield f"{mode} does not fit: {misfit}"
    if program.mode is not None:
        yield f"mode {program.mode}"


def _op(op: Op, shapes: dict[str, tuple[int, ...]]) -> str:
    reads = ", ".join((*op.inputs, *op.weights))
    return f"{op.outputs[0]} {_shape(shapes[op.outputs[0]])} = {op.kind}({reads})"


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(str(size) for size in shape)})"
