"""Work of the kernels of a program, for one sample: from ops to the terms of `cstool.plan.timing`."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from cstool.model.ir import (
    FusedKernel,
    KernelKind,
    Lookup,
    MatMul,
    Op,
    OpWork,
    Pairs,
    RowSums,
    Segment,
    VectorOps,
    matrices_of,
    rules_of,
    work_of,
)
from cstool.plan.compiler.program import Program, op_of, segment_weights, shapes_of
from cstool.plan.timing.streaming import Stream


@dataclass(frozen=True)
class KernelWork:
    """A kernel's work for one sample.

    Args:
        kernel: which
        work: of its ops, in order; products of the same activations as one
        needs_delta: whether a delta flows on to its inputs, or to weights before its product
        matrix_elements: of all its matrices and tables
        vectors: elements of each of its other weights: biases, weights of norms
        is_frozen: whether it runs forward alone
        frozen_vectors: elements of the vectors that get no gradient
    """

    kernel: FusedKernel
    work: tuple[OpWork, ...]
    needs_delta: bool
    matrix_elements: int
    vectors: tuple[int, ...]
    is_frozen: bool = False
    frozen_vectors: int = 0

    @property
    def weight_elements(self) -> int:
        """Of all its weights."""
        return self.matrix_elements + sum(self.vectors)

    @property
    def trained_elements(self) -> int:
        """Elements of the weights that get a gradient, zeros included."""
        if self.is_frozen:
            return 0
        frozen = sum(w.rows * w.width for w in self.work if isinstance(w, Lookup) and w.is_frozen)
        frozen += sum(
            w.inputs * (w.outputs - w.trained) for w in self.work if isinstance(w, MatMul) and w.trained is not None
        )
        return self.weight_elements - frozen - self.frozen_vectors

    @property
    def inputs(self) -> int:
        """Widest input of a product, or of a table's row."""
        widths = [w.inputs if isinstance(w, MatMul) else w.width for w in self.work if isinstance(w, MatMul | Lookup)]
        return max(widths, default=0)

    @property
    def outputs(self) -> int:
        """Rows of its matrices, or tables."""
        return sum(w.outputs if isinstance(w, MatMul) else w.rows for w in self.work if isinstance(w, MatMul | Lookup))

    @property
    def shape_text(self) -> str:
        """Its shape in words: tokens of a sample, inputs, outputs."""
        for item in self.work:
            tokens = f"{item.tokens:,} tokens, " if item.tokens > 1 else ""
            match item:
                case MatMul():
                    return f"({tokens}{item.inputs:,} inputs, {item.outputs:,} outputs)"
                case Pairs() if item.key_tokens != item.tokens:
                    return f"({tokens}queries of {item.width:,}; {item.key_tokens:,} tokens, keys of {item.kv_width:,})"
                case Pairs():
                    return f"({tokens}queries of {item.width:,}, keys of {item.kv_width:,})"
                case Lookup():
                    return f"({tokens}a table of {item.rows:,} x {item.width:,})"
        return "(no products)"

    @property
    def streams_for_delta(self) -> bool:
        """Whether its backward pass begins with its weights once more: for the delta, or a product that is repeated."""
        return not self.is_frozen and (
            self.needs_delta or any(isinstance(w, MatMul) and w.is_repeated for w in self.work)
        )

    @property
    def streamed_elements(self) -> int:
        """Elements of all its weights that are not zero."""
        zeros = sum(w.inputs * w.outputs - w.weights for w in self.work if isinstance(w, MatMul))
        return self.weight_elements - zeros

    def stream_bytes(self, stream: Stream) -> int:
        """Size of its weights on their way onto a wafer."""
        sparse = [w for w in self.work if isinstance(w, MatMul) and w.nonzeros is not None]
        nonzeros = sum(item.weights for item in sparse)
        return (self.streamed_elements - nonzeros) * stream.weight_bytes + sum(map(stream.matrix_bytes, sparse))

    @cached_property
    def is_sparse(self) -> bool:
        """Whether some of its weights are."""
        return any(isinstance(w, MatMul) and w.nonzeros is not None for w in self.work)

    def gradient_elements(self, samples: int) -> int:
        """Size of the gradients of so many samples: of a table, the rows that they ask for."""
        if self.is_frozen:
            return 0
        tables = (w for w in self.work if isinstance(w, Lookup) and not w.is_frozen)
        rows = sum(min(w.rows, w.tokens * samples) * w.width for w in tables)
        parts = (w.trained_part for w in self.work if isinstance(w, MatMul))
        return sum(self.vectors) - self.frozen_vectors + rows + sum(part.weights for part in parts if part is not None)

    @property
    def pairs(self) -> Pairs | None:
        """Its part of attention."""
        return next((w for w in self.work if isinstance(w, Pairs)), None)


def kernel_works(program: Program) -> tuple[tuple[KernelWork, ...], ...]:
    """Return the work of all kernels, per segment."""
    return tuple(
        tuple(_kernel_work(program, number, segment, kernel) for kernel in kernels)
        for number, (segment, kernels) in enumerate(zip(program.graph.segments, program.kernels, strict=True))
    )


def _kernel_work(program: Program, number: int, segment: Segment, kernel: FusedKernel) -> KernelWork:
    sparse = program.nonzeros[number] if program.nonzeros else {}
    weights = segment_weights(program.graph, segment)
    frozen = {name for name in kernel.weights if weights[name].frozen}
    shapes = shapes_of(program.graph, segment)
    inputs = {tensor.name for tensor in program.graph.inputs}
    work: list[OpWork] = []
    for name in kernel.ops:
        op = op_of(segment, name)
        for item in work_of(op, shapes):
            matrices = matrices_of(op)
            if frozen:
                item = _without_gradient(item, op, frozen, segment.name_of(op.name) in program.graph.frozen_ops)
            if isinstance(item, MatMul) and not sparse.keys().isdisjoint(matrices):
                kept = sum(sparse.get(matrix, math.prod(shapes[matrix])) for matrix in matrices)
                item = replace(item, nonzeros=kept)
            products = [index for index, other in enumerate(work) if isinstance(other, MatMul)]
            if isinstance(item, MatMul) and products:
                # They read the same activation: one product with the matrices below each other.
                first = work[products[0]]
                assert isinstance(first, MatMul) and first.inputs == item.inputs
                is_sparse = first.nonzeros is not None or item.nonzeros is not None
                nonzeros = first.weights + item.weights if is_sparse else None
                rows = [w.outputs if w.trained is None else w.trained for w in (first, item)]
                outputs = first.outputs + item.outputs
                parts = [part for part in (first.trained_part, item.trained_part) if part is not None]
                is_frozen = sum(rows) < outputs
                work[products[0]] = replace(
                    first,
                    outputs=outputs,
                    nonzeros=nonzeros,
                    trained=sum(rows) if is_frozen else None,
                    trained_nonzeros=sum(part.weights for part in parts) if is_frozen and is_sparse else None,
                )
            else:
                work.append(item)
    streamed = {matrix for name in kernel.ops for matrix in matrices_of(op_of(segment, name))}
    elements = sum(weights[name].size for name in kernel.weights if name in streamed)
    vectors = tuple(weights[name].size for name in kernel.weights if name not in streamed)
    is_frozen = all(segment.name_of(name) in program.graph.frozen_ops for name in kernel.ops)
    without_delta = inputs | program.graph.frozen_tensors
    # A norm that is trained wants the delta of the product after it, also where it passes none on.
    ops = (op_of(segment, name) for name in kernel.ops)
    multiplied = (op.inputs[0] for op in ops if rules_of(op).anchor in (KernelKind.MATMUL, KernelKind.LOSS))
    wanted = any(segment.name_of(name) not in without_delta for name in (*kernel.reads, *multiplied))
    needs_delta = not is_frozen and wanted
    frozen_vectors = sum(weights[name].size for name in frozen - streamed)
    return KernelWork(kernel, tuple(work), needs_delta, elements, vectors, is_frozen, frozen_vectors)


def _without_gradient(item: OpWork, op: Op, frozen: set[str], is_forward_alone: bool) -> OpWork:
    """Return the work of an op of a kernel with frozen weights: their gradients are not computed."""
    matrices = matrices_of(op)
    if isinstance(item, MatMul) and not frozen.isdisjoint(matrices):
        # Of experts some may be frozen: all have as many rows.
        return replace(item, trained=item.outputs // len(matrices) * sum(name not in frozen for name in matrices))
    if isinstance(item, Lookup) and frozen.issuperset(matrices):
        return replace(item, is_frozen=True)
    if is_forward_alone and isinstance(item, VectorOps | RowSums):
        return replace(item, backward=0)
    return item
