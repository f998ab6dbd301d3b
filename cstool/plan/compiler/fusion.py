"""Passes: ops that run as one kernel are put together, and every kernel gets its kind.

A kernel is a run of ops that follow each other in the stream, around one *anchor*: an op with a product or a table.
Linear ops that read the same activation are one anchor (query, key and value; a gate and its gated layer). A norm joins
the anchor that follows if that reads it; any other op without a product joins the kernel before it that made its input.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from cstool.model.ir import FusedKernel, KernelKind, Op, Segment, rules_of
from cstool.plan.compiler.program import Program, op_of, outer_reads


def fuse_kernels(program: Program) -> Program:
    """Cut every segment into kernels, all of kind elementwise so far."""
    graph = program.graph
    losses = {loss.name for loss in graph.losses}
    kernels = tuple(
        tuple(_kernel(segment, ops, outer, losses) for ops in group_ops(segment.ops))
        for segment, outer in zip(graph.segments, outer_reads(graph), strict=True)
    )
    return replace(program, kernels=kernels)


def match_kernels(program: Program) -> Program:
    """Give every kernel its kind, and the name of its anchor.

    Raises:
        ValueError: no kernel of the wafer does the work of a group of ops
    """
    kernels = tuple(
        tuple(_matched(segment, kernel) for kernel in kernels)
        for segment, kernels in zip(program.graph.segments, program.kernels, strict=True)
    )
    return replace(program, kernels=kernels)


def group_ops(ops: Sequence[Op]) -> list[list[Op]]:
    """Cut ops, in the order of the stream, into the runs that are one kernel each."""
    groups: list[list[Op]] = []
    for index, op in enumerate(ops):
        group = groups[-1] if groups else []
        follows = ops[index + 1] if index + 1 < len(ops) else None
        opens = follows is not None and rules_of(follows).anchor and set(op.outputs).intersection(follows.inputs)
        if rules_of(op).opens_kernel and opens:
            joins = False
        elif rules_of(op).anchor:
            joins = bool(group) and _takes_anchor(group, op)
        else:
            made = {name for other in group for name in other.outputs}
            joins = bool(made.intersection(op.inputs))
        if joins:
            group.append(op)
        else:
            groups.append([op])
    return groups


def _takes_anchor(group: Sequence[Op], op: Op) -> bool:
    """Say whether a kernel takes one more anchor: after a norm that it reads, or beside anchors of the same input."""
    if len(group) == 1 and rules_of(group[0]).opens_kernel:
        return bool(set(group[0].outputs).intersection(op.inputs))
    last = group[-1]
    return rules_of(op).anchor is KernelKind.MATMUL and op.kind is last.kind and op.inputs == last.inputs


def _kernel(segment: Segment, ops: Sequence[Op], outer: frozenset[str], losses: Collection[str]) -> FusedKernel:
    made = [name for op in ops for name in op.outputs]
    own = {op.name for op in ops}
    beside = {name for op in segment.ops if op.name not in own for name in op.inputs}
    return FusedKernel(
        name=ops[0].name,
        kind=KernelKind.ELEMENTWISE,
        ops=tuple(op.name for op in ops),
        reads=tuple(dict.fromkeys(name for op in ops for name in op.inputs if name not in made)),
        makes=tuple(name for name in made if name in outer or name in beside or name in losses),
        weights=tuple(dict.fromkeys(name for op in ops for name in op.weights)),
    )


def _matched(segment: Segment, kernel: FusedKernel) -> FusedKernel:
    ops = [op_of(segment, name) for name in kernel.ops]
    anchors = [op for op in ops if rules_of(op).anchor]
    kinds = {anchor for op in anchors if (anchor := rules_of(op).anchor)}
    if len(kinds) > 1 or (kinds - {KernelKind.MATMUL} and len(anchors) > 1):
        raise ValueError(f"{kernel.name}: no kernel does {', '.join(op.kind for op in anchors)} at once")
    return replace(kernel, name=anchors[0].name, kind=kinds.pop()) if anchors else kernel
