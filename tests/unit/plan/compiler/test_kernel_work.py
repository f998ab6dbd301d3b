"""What kernels compute: the work of their ops, products of one activation put together."""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from cstool.model.graphs import build_graph
from cstool.model.graphs.statistics import count_statistics
from cstool.model.ir import FusedKernel, Graph, KernelKind, Lookup, MatMul, OpKind, Pairs, VectorOps
from cstool.model.params import FcMnistParams
from cstool.plan.compiler.compile import KERNEL_PASSES, run_passes
from cstool.plan.compiler.kernel_work import KernelWork, kernel_works
from cstool.plan.compiler.program import Program, segment_weights
from cstool.plan.timing.streaming import Stream
from tests.models import FAMILIES, attentive, decoder
from tests.unit.plan.compiler.programs import FAMILY_NAMES, a_request, compiled, every_family

KERNEL = FusedKernel("k", KernelKind.ELEMENTWISE, ops=("op",), reads=("x",), makes=("y",), weights=())


def work_of(*work: Any, **changes: Any) -> KernelWork:
    return replace(KernelWork(KERNEL, work, True, 0, ()), **changes)


def layer_works(graph: Graph, counts: Mapping[str, int]) -> tuple[KernelWork, ...]:
    """The kernels of the layers of a decoder, with the non-zeros of some of its weights."""
    layer = next(number for number, segment in enumerate(graph.segments) if "layers" in segment.ops[0].name)
    nonzeros = tuple(MappingProxyType(counts if n == layer else {}) for n in range(len(graph.segments)))
    return kernel_works(run_passes(Program(graph, a_request(), nonzeros), KERNEL_PASSES, None))[layer]


@pytest.mark.parametrize("graph", [*every_family().values(), attentive()], ids=[*FAMILY_NAMES, "attentive"])
def test_kernels_together_hold_each_weight_where_it_is_used(graph):
    """A tied weight counts in every kernel that names it; matrices, tables and vectors, told apart by their shapes.

    Products put together leave their sum; only what reads the batch passes no delta on.
    """
    flops, passes = 0, {True: [], False: []}
    inputs = {tensor.name for tensor in graph.inputs}
    for segment, works in zip(graph.segments, kernel_works(compiled(graph, KERNEL_PASSES)), strict=True):
        weights = segment_weights(graph, segment)
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
            products = [item for item in work.work if isinstance(item, MatMul)]
            assert len(products) <= 1
            flops += segment.count * sum(2 * item.tokens * item.weights for item in products)
            flops += segment.count * (4 * work.pairs.pairs * work.pairs.width if work.pairs else 0)
            passes[work.needs_delta].append(set(work.kernel.reads) - inputs)
    assert flops == count_statistics(graph).sample_flops.forward
    assert all(passes[True])
    assert not any(passes[False])
    assert passes[False] or graph.name == "attentive"


def test_shapes_in_words_and_what_a_kernel_without_products_has():
    vector, pairs = VectorOps(5, 12, 3, 4), Pairs(2048, 2048, 9, 4096, 1024, 128)
    cross = "(2,048 tokens, queries of 4,096; 77 tokens, keys of 1,024)"
    for work, text in (
        (work_of(vector, MatMul(2048, 768, 3072)), "(2,048 tokens, 768 inputs, 3,072 outputs)"),
        (work_of(pairs), "(2,048 tokens, queries of 4,096, keys of 1,024)"),
        (work_of(replace(pairs, key_tokens=77)), cross),
        (work_of(Lookup(2048, 50257, 768), vector), "(2,048 tokens, a table of 50,257 x 768)"),
        (work_of(vector), "(no products)"),
    ):
        assert work.shape_text == text
    bare = work_of(vector, vectors=(12, 12))
    assert (bare.inputs, bare.outputs, bare.weight_elements, bare.pairs) == (0, 0, 24, None)
    assert work_of(vector, pairs).pairs is pairs


def test_what_a_sparse_kernel_streams():
    """Of 96 weights 10 are not zero: 2 bytes and an index of 2 for each, 2 bytes for each bias."""
    stream = Stream(weight_bytes=2, nonzero_bytes=4, gradient_bytes=4)
    dense = KernelWork(KERNEL, (MatMul(3, 8, 12), VectorOps(3, 12, 1, 1)), True, 96, (12,))
    sparse = replace(dense, work=(MatMul(3, 8, 12, nonzeros=10), *dense.work[1:]))
    for work, found in ((dense, (108, 216, False, 108)), (sparse, (22, 64, True, 22))):
        streamed = work.streamed_elements, work.stream_bytes(stream), work.is_sparse, work.gradient_elements(5)
        assert streamed == found
    # It has as many matrices as before, where they are kept.
    assert sparse.weight_elements == dense.weight_elements == 108


def test_products_put_together_and_experts_have_the_non_zeros_of_all():
    """Keys and values are dense, queries have 20 of 64."""
    works = layer_works(decoder(), {"transformer_decoder.layers.{n}.self_attn.proj_q_dense_layer.weight": 20})
    products = {
        w.kernel.name.rpartition(".")[2]: next(p for p in w.work if isinstance(p, MatMul)) for w in works if w.inputs
    }
    assert products["proj_q_dense_layer"] == MatMul(tokens=8, inputs=8, outputs=24, nonzeros=20 + 64 + 64)
    assert {name for name, product in products.items() if product.nonzeros is not None} == {"proj_q_dense_layer"}
    # Of four experts, 16 x 16 each, one has 20 non-zeros in the first matrix and one 30; all else is dense.
    graph = decoder(**FAMILIES["mixtral"])
    names = [w.name for s in graph.segments for w in s.weights if w.name.endswith(".0.linear_layer.weight")]
    works = layer_works(graph, dict(zip(names[1:3], (20, 30), strict=True)))
    found = [item for work in works for item in work.work if isinstance(item, MatMul) and item.experts > 1]
    size = graph.weights[names[0].replace("{n}", "0")].size
    assert [item.nonzeros for item in found] == [2 * size + 20 + 30 + 4 * size, None]


def test_weights_come_again_for_a_delta_or_a_product_that_is_repeated():
    """A network without hidden layers: nothing before the loss wants its delta, but its gradient needs the logits."""

    def needs(*sizes: int) -> list[tuple[bool, bool]]:
        graph = build_graph(FcMnistParams(name="fc_mnist", hidden_sizes=sizes), None)
        return [(w.needs_delta, w.streams_for_delta) for w in kernel_works(compiled(graph, KERNEL_PASSES))[0]]

    assert needs() == [(False, True)]
    assert needs(50, 40)[:2] == [(False, False), (True, True)]


def test_of_a_tables_gradient_only_the_rows_leave_that_were_asked_for():
    work = KernelWork(KERNEL, (Lookup(tokens=3, rows=10, width=8), MatMul(3, 5, 7)), True, 80 + 35, (6,))
    assert work.gradient_elements(2) == 6 * 8 + 5 * 7 + 6
    assert work.gradient_elements(100) == 10 * 8 + 5 * 7 + 6
