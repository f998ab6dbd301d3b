"""Kernels: every op in one of them, in the order of the stream, around one anchor; what they read and make."""

import re
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import Graph, KernelKind, Loss, Op, OpKind, Segment, Tensor, rules_of
from cstool.plan.compiler.compile import KERNEL_PASSES, PASSES, infer_shapes, run_passes
from cstool.plan.compiler.fusion import group_ops, match_kernels
from cstool.plan.compiler.program import Program, op_of, outer_reads
from cstool.plan.compiler.text import program_text
from tests.models import decoder
from tests.unit.plan.compiler.programs import (
    FAMILY_NAMES,
    a_request,
    compiled,
    every_family,
    small_system,
    with_op,
    with_shape,
)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_op_is_in_one_kernel_around_one_kind_of_anchor(family, dropout):
    graph = every_family(dropout=dropout)[family]
    for segment, kernels in zip(graph.segments, compiled(graph, KERNEL_PASSES).kernels, strict=True):
        assert [name for kernel in kernels for name in kernel.ops] == [op.name for op in segment.ops]
        assert len({kernel.name for kernel in kernels}) == len(kernels)
        for kernel in kernels:
            ops = [op_of(segment, name) for name in kernel.ops]
            anchors = [op for op in ops if rules_of(op).anchor]
            assert {rules_of(op).anchor for op in anchors} == {kernel.kind}
            assert anchors[0].name == kernel.name
            # Several products are one where they read the same.
            assert len({op.inputs for op in anchors}) == 1
            assert len(anchors) == 1 or kernel.kind is KernelKind.MATMUL
            assert list(kernel.weights) == [weight for op in ops for weight in op.weights]


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_what_kernels_read_and_make_is_what_crosses_between_them(family):
    """Against all repetitions written out: an activation is made for others just where another kernel reads it."""
    graph = every_family()[family]
    program = compiled(graph, KERNEL_PASSES)
    found = {
        (number, repetition, kernel.name): [
            {segment.name_of(name, repetition) for name in names} for names in (kernel.ops, kernel.reads, kernel.makes)
        ]
        for number, (segment, kernels) in enumerate(zip(graph.segments, program.kernels, strict=True))
        for repetition in range(segment.count)
        for kernel in kernels
    }
    kernel_of = {op: where for where, (ops, _, _) in found.items() for op in ops}
    maker = {name: kernel_of[op.name] for op in graph.ops for name in op.outputs}
    crossing, incoming = defaultdict(set), defaultdict(set)
    for op in graph.ops:
        for name in op.inputs:
            if maker.get(name) != kernel_of[op.name]:
                incoming[kernel_of[op.name]].add(name)
                crossing[maker.get(name)].add(name)
    for loss in graph.losses:
        crossing[maker[loss.name]].add(loss.name)
    for where, (_, reads, makes) in found.items():
        assert (reads, makes) == (incoming[where], crossing[where])


@given(st.lists(st.sampled_from(list(OpKind)), max_size=12), st.data())
def test_any_run_of_ops_is_cut_into_runs(kinds, data):
    ops = []
    for n, kind in enumerate(kinds):
        read = data.draw(st.lists(st.sampled_from(["x", *(f"t{m}" for m in range(n))]), min_size=1, max_size=2))
        ops.append(Op(kind, f"op{n}", tuple(read), (f"t{n}",)))
    groups = group_ops(ops)
    assert [op for group in groups for op in group] == ops
    assert all(groups)
    for group in groups:
        anchors = [op for op in group if rules_of(op).anchor]
        assert len({op.kind for op in anchors}) <= 1
        assert len(anchors) <= 1 or {rules_of(op).anchor for op in anchors} == {KernelKind.MATMUL}
        assert len({op.inputs for op in anchors}) <= 1


def test_what_others_read_is_found_whichever_repetition_reads_it():
    """Of three repetitions, one activation goes on to the next, one to what follows the last, one nowhere."""

    def op(name: str, *inputs: str) -> Op:
        return Op(OpKind.SCALE, name, inputs, (name,))

    blocks = Segment(
        (op("mid.{n}", "state.{n}"), op("state.{n+1}", "mid.{n}"), op("late.{n}", "mid.{n}")),
        tuple(Tensor(name, (4,)) for name in ("mid.{n}", "state.{n+1}", "late.{n}")),
        count=3,
    )
    start = Segment((op("state.0", "x"),), (Tensor("state.0", (4,)),))
    end = Segment((op("loss", "late.2"),), (Tensor("loss", ()),))
    graph = Graph("blocks", (Tensor("x", (4,)),), (start, blocks, end), (Loss("loss"),))
    assert [set(names) for names in outer_reads(graph)] == [{"state.0"}, {"state.{n+1}", "late.{n}"}, set()]


def test_a_kernel_of_two_kinds_is_refused():
    program = compiled(every_family()["gpt2"], KERNEL_PASSES)
    first, *others = program.kernels[1]
    both = replace(first, ops=tuple(name for kernel in program.kernels[1][:2] for name in kernel.ops))
    program = replace(program, kernels=(program.kernels[0], (both, *others[1:]), program.kernels[2]))
    layer = re.escape(first.name)
    with pytest.raises(ValueError, match=rf"^{layer}: no kernel does linear, linear, linear, attention at once$"):
        match_kernels(program)


@pytest.mark.parametrize("family", ["gpt2", "llama", "falcon, one norm", "gemma2", "bloom", "fc_mnist"])
def test_kernels_in_words(family, golden):
    name = family.replace(", ", "_").replace(" ", "_")
    golden(f"compiler/kernels_{name}.txt", program_text(compiled(every_family(layers=2)[family], KERNEL_PASSES)))


def test_what_each_pass_adds_in_words(golden):
    texts: list[tuple[str, str]] = []
    program = Program(decoder(layers=2), a_request(small_system(40, 60), execution_mode="auto"))
    run_passes(program, PASSES, lambda name, program: texts.append((name, program_text(program))))
    assert [name for name, _ in texts] == [each.__name__ for each in PASSES]
    parts, before = [], ""
    for name, text in texts:
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        parts += [f"== {name}", *(line for line in text.splitlines() if line not in before.splitlines())]
        before = text
    golden("compiler/print_after_all.txt", "\n".join(parts) + "\n")
    request = a_request(replace(small_system(8, 8), memoryx=None))
    assert program_text(compiled(decoder(), PASSES[:-3], request)).splitlines()[-1] == (
        "weight_streaming does not fit: small: must have MemoryX, from which weights are streamed, got a system without"
    )


# Shapes: every family passes, and whatever does not go together is named.
LAYER = "transformer_decoder.layers.{n}"
ATTENTION = f"{LAYER}.self_attn"
FFN = f"{LAYER}.ffn.ffn.0.linear_layer"


def infer(graph: Graph) -> Program:
    return infer_shapes(Program(graph, a_request()))


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_family_goes_together_and_no_tensor_of_it_may_have_one_element_more(family):
    """Slow on purpose: each declared shape, each of its sizes, made wrong one at a time."""
    graph = every_family(dropout=0.1)[family]
    assert infer(graph).graph is graph
    graph = every_family(layers=2)[family]
    things = [
        (s, each, axis) for s in graph.segments for each in (*s.tensors, *s.weights) for axis in range(len(each.shape))
    ]
    for segment, thing, axis in things:
        changed = with_shape(graph, thing.name, tuple(size + (axis == n) for n, size in enumerate(thing.shape)))
        is_spare_row = thing.name.endswith("position_embeddings.embed.weight") and axis == 0
        is_row_of_table = "word_embeddings" in thing.name and axis == 0
        # A bias would count the classes, too.
        is_class = thing.name == "lm_head.weight" and axis == 0 and len(segment.ops[-1].weights) == 1
        fits = is_spare_row or is_row_of_table or is_class
        with nullcontext() if fits else pytest.raises(ValueError, match=": "):
            infer(changed)


QUERY, OUTPUT = f"{ATTENTION}.proj_q_dense_layer", f"{ATTENTION}.proj_output_dense_layer"
DOWN = f"{LAYER}.ffn.ffn.1.linear_layer"
PLACES, WORDS = "embedding_layer.position_embeddings", "embedding_layer.word_embeddings"


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (f"{FFN}.y", (8, 17), f"{FFN}: makes (8, 16), is declared to make (8, 17)"),
        (f"{FFN}.weight", (16, 9), f"{FFN}: weight (16, 9) does not fit inputs (8, 8)"),
        (f"{FFN}.weight", (15, 8), f"{FFN}: makes (8, 15), is declared to make (8, 16)"),
        (f"{FFN}.bias", (17,), f"{FFN}.activation: weight (17,) does not fit inputs (8, 16)"),
        (f"{LAYER}.norm1.weight", (7,), f"{LAYER}.norm1: weight (7,) does not fit inputs (8, 8)"),
        (f"{LAYER}.residual", (8, 9), f"{OUTPUT}.residual: makes (8, 8), is declared to make (8, 9)"),
        (f"{PLACES}.embed.weight", (7, 8), f"{PLACES}: table (7, 8) does not fit 8 positions"),
        (f"{WORDS}.weight", (11, 9), f"{WORDS}: makes (8, 9), is declared to make (8, 8)"),
        ("labels", (7,), "lm_head: inputs (8, 8), labels (7,), mask (8,) and weight (11, 8) do not fit"),
        ("mask", (7,), "lm_head: inputs (8, 8), labels (8,), mask (7,) and weight (11, 8) do not fit"),
        (f"{QUERY}.bias", (9,), f"{QUERY}: bias (9,) does not fit 8 outputs"),
        (ATTENTION, {"attributes": {"heads": 3}}, f"{ATTENTION}: 3 heads, 2 of keys"),
        (ATTENTION, {"attributes": {"kv_heads": 1}}, f"{ATTENTION}: 2 heads, 1 of keys"),
        (
            *(ATTENTION, {"inputs": (f"{QUERY}.y", f"{ATTENTION}.proj_k_dense_layer.y", "input_ids")}),
            f"{ATTENTION}: keys (8, 8) and values (8,) do not fit queries (8, 8)",
        ),
        (
            *(f"{DOWN}.residual", {"inputs": (f"{FFN}.y", f"{LAYER}.residual")}),
            f"{DOWN}.residual: inputs differ in shape, (8, 16) and (8, 8)",
        ),
    ],
)
def test_a_shape_or_an_op_that_does_not_fit_is_named(name, shape, message):
    changed = with_op(decoder(), name, **shape) if isinstance(shape, dict) else with_shape(decoder(), name, shape)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        infer(changed)
