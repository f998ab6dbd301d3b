"""What kernels compute: the work of their ops, products of one activation put together."""

import math
from dataclasses import replace
from types import MappingProxyType

import pytest

from cstool.compiler.compile import KERNEL_PASSES, PASSES, run_passes
from cstool.compiler.kernel_work import KernelWork, kernel_works
from cstool.compiler.program import Program, segment_weights
from cstool.ir import FusedKernel, Graph, KernelKind, Lookup, MatMul, OpKind, Pairs, VectorOps
from cstool.models import build_graph
from cstool.models.statistics import count_statistics
from cstool.params import FcMnistParams
from cstool.perf.streaming import Stream
from tests.models import FAMILIES, attentive, decoder, fc_mnist
from tests.unit.compiler.programs import FAMILY_NAMES, a_request, compiled, every_family

KERNEL = FusedKernel("k", KernelKind.ELEMENTWISE, ops=("op",), reads=("x",), makes=("y",), weights=())


def program_of(graph: Graph) -> Program:
    return compiled(graph, KERNEL_PASSES)


@pytest.fixture(params=FAMILY_NAMES)
def program(request) -> Program:
    """A model of each family."""
    return program_of(every_family()[request.param])


def test_kernels_together_hold_each_weight_where_it_is_used(program):
    """A tied weight counts in every kernel that names it; matrices, tables and vectors, told apart by their shapes."""
    for segment, works in zip(program.graph.segments, kernel_works(program), strict=True):
        weights = segment_weights(program.graph, segment)
        for work in works:
            ops = [op for op in segment.ops if op.name in work.kernel.ops]
            # What is added to scores is a table in the file, and a vector on the wafer.
            biases = {name for op in ops if op.kind is OpKind.ATTENTION for name in op.weights}
            shapes = [
                (weights[name].size,) if name in biases else weights[name].shape
                for name in dict.fromkeys(name for op in ops for name in op.weights)
            ]
            assert work.weight_elements == sum(math.prod(shape) for shape in shapes)
            assert work.vectors == tuple(shape[0] for shape in shapes if len(shape) == 1)
            # Of its matrices and tables, all rows are outputs.
            assert work.outputs == sum(shape[0] for shape in shapes if len(shape) == 2)
            assert work.inputs == max((shape[1] for shape in shapes if len(shape) == 2), default=0)


def test_what_is_added_to_scores_is_no_matrix_of_the_wafer():
    ((_, *attention, _),) = kernel_works(compiled(attentive(), PASSES))
    assert [(work.matrix_elements, work.vectors) for work in attention] == [(0, (8, 2))] * 2


def test_putting_products_together_leaves_their_sum(program):
    flops = 0
    for segment, works in zip(program.graph.segments, kernel_works(program), strict=True):
        for work in works:
            products = [item for item in work.work if isinstance(item, MatMul)]
            assert len(products) <= 1
            flops += segment.count * sum(2 * item.tokens * item.weights for item in products)
            flops += segment.count * (4 * work.pairs.pairs * work.pairs.width if work.pairs else 0)
    assert flops == count_statistics(program.graph).sample_flops.forward


def test_only_what_reads_the_batch_passes_no_delta_on(program):
    inputs = {tensor.name for tensor in program.graph.inputs}
    without = [work.kernel for works in kernel_works(program) for work in works if not work.needs_delta]
    assert without
    assert all(inputs.issuperset(kernel.reads) for kernel in without)
    with_delta = [work.kernel for works in kernel_works(program) for work in works if work.needs_delta]
    assert all(set(kernel.reads) - inputs for kernel in with_delta)


def test_shapes_in_words():
    def text(*work: MatMul | Pairs | Lookup | VectorOps) -> str:
        return KernelWork(KERNEL, work, True, 0, ()).shape_text

    vector = VectorOps(5, 12, 3, 4)
    assert text(vector, MatMul(2048, 768, 3072)) == "(2,048 tokens, 768 inputs, 3,072 outputs)"
    assert text(Pairs(2048, 2048, 9, 4096, 1024, 128)) == "(2,048 tokens, queries of 4,096, keys of 1,024)"
    cross = "(2,048 tokens, queries of 4,096; 77 tokens, keys of 1,024)"
    assert text(Pairs(2048, 77, 9, 4096, 1024, 128)) == cross
    assert text(Lookup(2048, 50257, 768), vector) == "(2,048 tokens, a table of 50,257 x 768)"
    assert text(vector) == "(no products)"


def test_what_a_kernel_without_products_has():
    work = KernelWork(KERNEL, (VectorOps(5, 12, 3, 4),), True, 0, (12, 12))
    assert (work.inputs, work.outputs, work.weight_elements, work.pairs) == (0, 0, 24, None)
    pairs = Pairs(4, 4, 10, 8, 4, 4)
    assert KernelWork(KERNEL, (VectorOps(5, 12, 3, 4), pairs), True, 0, ()).pairs is pairs


def test_what_a_sparse_kernel_streams():
    """Of 96 weights 10 are not zero: 2 bytes and an index of 2 for each, 2 bytes for each bias."""
    stream = Stream(weight_bytes=2, nonzero_bytes=4, gradient_bytes=4)
    dense = KernelWork(KERNEL, (MatMul(3, 8, 12), VectorOps(3, 12, 1, 1)), True, 96, (12,))
    assert (dense.streamed_elements, dense.stream_bytes(stream), dense.is_sparse) == (108, 216, False)
    sparse = replace(dense, work=(MatMul(3, 8, 12, nonzeros=10), *dense.work[1:]))
    assert (sparse.streamed_elements, sparse.stream_bytes(stream), sparse.is_sparse) == (22, 64, True)
    assert (dense.gradient_elements(5), sparse.gradient_elements(5)) == (108, 22)
    # It has as many matrices as before, where they are kept.
    assert sparse.weight_elements == dense.weight_elements == 108


def test_products_put_together_have_the_non_zeros_of_all():
    """Keys and values are dense, queries have 20 of 64."""
    graph = decoder()
    layer = next(number for number, segment in enumerate(graph.segments) if "layers" in segment.ops[0].name)
    query = next(w.name for w in graph.segments[layer].weights if w.name.endswith("proj_q_dense_layer.weight"))
    nonzeros = tuple(MappingProxyType({query: 20} if number == layer else {}) for number in range(len(graph.segments)))
    works = kernel_works(run_passes(Program(graph, a_request(), nonzeros), KERNEL_PASSES, None))[layer]
    products = {
        w.kernel.name.rpartition(".")[2]: next(p for p in w.work if isinstance(p, MatMul)) for w in works if w.inputs
    }
    assert products["proj_q_dense_layer"] == MatMul(tokens=8, inputs=8, outputs=24, nonzeros=20 + 64 + 64)
    assert {name for name, product in products.items() if product.nonzeros is not None} == {"proj_q_dense_layer"}


def test_experts_have_the_non_zeros_of_all_of_them():
    """Of four experts, 16 x 16 each, one has 20 non-zeros in the first matrix and one 30; all else is dense."""
    graph = decoder(**FAMILIES["mixtral"])
    layer = next(number for number, segment in enumerate(graph.segments) if "layers" in segment.ops[0].name)
    names = [w.name for w in graph.segments[layer].weights if w.name.endswith(".0.linear_layer.weight")]
    counts = MappingProxyType(dict(zip(names[1:3], (20, 30), strict=True)))
    nonzeros = tuple(counts if number == layer else MappingProxyType({}) for number in range(len(graph.segments)))
    works = kernel_works(run_passes(Program(graph, a_request(), nonzeros), KERNEL_PASSES, None))[layer]
    found = [item for work in works for item in work.work if isinstance(item, MatMul) and item.experts > 1]
    size = graph.weights[names[0].replace("{n}", "0")].size
    assert [item.nonzeros for item in found] == [2 * size + 20 + 30 + 4 * size, None]


def test_weights_come_again_for_a_delta_or_a_product_that_is_repeated():
    """A network without hidden layers: nothing before the loss wants its delta, but its gradient needs the logits."""
    (work,) = kernel_works(program_of(build_graph(FcMnistParams(name="fc_mnist", hidden_sizes=()), None)))[0]
    assert (work.needs_delta, work.streams_for_delta) == (False, True)
    first, second, _ = kernel_works(program_of(fc_mnist(50, 40)))[0]
    assert (first.needs_delta, first.streams_for_delta) == (False, False)
    assert (second.needs_delta, second.streams_for_delta) == (True, True)


def test_of_a_tables_gradient_only_the_rows_leave_that_were_asked_for():
    work = KernelWork(KERNEL, (Lookup(tokens=3, rows=10, width=8), MatMul(3, 5, 7)), True, 80 + 35, (6,))
    assert work.gradient_elements(2) == 6 * 8 + 5 * 7 + 6
    assert work.gradient_elements(100) == 10 * 8 + 5 * 7 + 6
