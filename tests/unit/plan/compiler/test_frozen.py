"""Weights that are frozen anywhere: deltas and gradients beside those of a walk through all ops, layer by layer."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import ParamsError
from cstool.model.graphs.tuning import tuned
from cstool.model.ir import Graph, Op, OpKind, matrices_of, verify
from cstool.model.params.sections.tuning import Tuning
from cstool.plan.compiler.compile import PASSES
from tests.examples import examples
from tests.models import FAMILIES, decoder, encoder_decoder, vision
from tests.unit.plan.compiler.programs import a_request, compiled, small_system

MODULES = (
    *("*word_embeddings*", "*position_embeddings*", "*norm*", "*proj_q*", "*proj_k*", "*proj_v*", "*proj_output*"),
    *("*ffn.0*", "*ffn.1*", "*bias", "lm_head*", "*layers.0.*", "*layers.1.*", "*layers.2.*", "first:1", "first:2"),
)


def varied(graph: Graph, chosen: set[str]) -> Graph | None:
    """Return the graph with what is frozen of it; None where nothing is, or nothing is left."""
    found = set()
    for choice in chosen:
        with contextlib.suppress(ParamsError):
            tuned(graph, Tuning((choice,)))
            found.add(choice)
    with contextlib.suppress(ParamsError):
        return tuned(graph, Tuning(tuple(sorted(found)))) if found else None
    return None


class Walk:
    """What runs backward, found by going through all ops with their numbers written out: the slow obvious twin."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.ops = graph, {op.name: op for op in graph.ops}
        # Tensors that anything trained lies before.
        self.behind: set[str] = set()
        for op in graph.ops:
            trains = any(not graph.weights[name].frozen for name in op.weights)
            if trains or self.behind.intersection(op.inputs):
                self.behind.update(op.outputs)

    def gradient_elements(self, ops: list[Op], samples: int) -> int:
        found = 0
        for op, name in [(each, name) for each in ops for name in each.weights]:
            weight = self.graph.weights[name]
            rows = weight.shape[0]
            if op.kind in (OpKind.EMBEDDING, OpKind.POSITION_EMBEDDING) and name in matrices_of(op):
                tokens = self.graph.tensors[op.outputs[0]].tokens
                rows = min(rows, tokens * (samples if op.kind is OpKind.EMBEDDING else 1))
            found += 0 if weight.frozen else rows * (weight.size // weight.shape[0])
        return found


def check(graph: Graph) -> None:
    """Compare what is planned for weight streaming with the walk."""
    verify(graph)
    walk = Walk(graph)
    program = compiled(graph, PASSES, a_request(small_system(60, 50), 2))
    samples = program.micro_batches[next(iter(program.micro_batches))]
    for segment, kernels, planned in zip(graph.segments, program.kernels, program.streaming.kernels, strict=True):
        for kernel, streamed in zip(kernels, planned, strict=True):
            for repetition in {0, segment.count - 1}:
                ops = [walk.ops[segment.name_of(name, repetition)] for name in kernel.ops]
                if kernel.kind == "matmul":
                    anchor = walk.ops[segment.name_of(kernel.name, repetition)]
                    assert (streamed.cycles.delta.ingress > 0) == (anchor.inputs[0] in walk.behind), anchor.name
                assert streamed.gradient_bytes == streamed.parts * 4 * walk.gradient_elements(ops, samples), ops
                if not any(walk.behind.intersection(op.outputs) for op in ops):
                    assert streamed.cycles.delta.cycles == streamed.cycles.gradient.cycles == 0


@examples(60)
@given(
    family=st.sampled_from(["gpt2", "llama", "falcon, two norms", "gptj", "gemma2", "starcoder"]),
    layers=st.integers(1, 4),
    chosen=st.sets(st.sampled_from(MODULES), min_size=1, max_size=5),
)
def test_what_runs_backward_is_what_something_trained_lies_before(family, layers, chosen):
    graph = varied(decoder(layers=layers, **FAMILIES[family]), chosen)
    if graph is not None:
        check(graph)


@pytest.mark.parametrize("choice", ["*word_embeddings*", "*norm*", "*layers.0.*", "first:1", "*ffn*"])
@pytest.mark.parametrize("model", [encoder_decoder, vision])
def test_also_of_other_models(model, choice):
    graph = varied(model(layers=2), {choice})
    if graph is not None:
        verify(graph)
        assert compiled(graph, PASSES, a_request(small_system(60, 50), 2)).streaming is not None
