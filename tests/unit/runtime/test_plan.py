"""The plan: buffers that are alive together never overlap, and deltas of a fan-out are added."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cstool.ir import Graph, Initializer, Op, OpKind, Segment, Tensor, Weight, verify
from cstool.runtime.plan import ALIGNMENT_BYTES, After, _Life, _place, make_plan
from tests.models import decoder, fc_mnist
from tests.unit.runtime.machines import arrays_of, assert_gradients, machine, random_batch


@given(
    st.lists(
        st.tuples(st.integers(1, 2000), st.integers(0, 20), st.integers(0, 20)).map(
            lambda t: _Life((t[0],), "float32", min(t[1:]), max(t[1:]))
        ),
        min_size=1,
        max_size=30,
    )
)
def test_buffers_that_are_alive_together_never_overlap(lives: list[_Life]) -> None:
    buffers, slot_bytes = _place({str(i): life for i, life in enumerate(lives)})
    for i, a in enumerate(lives):
        place = buffers[str(i)].offset_bytes
        assert place % ALIGNMENT_BYTES == 0
        assert place + a.size_bytes <= slot_bytes
        for j, b in enumerate(lives[:i]):
            other = buffers[str(j)].offset_bytes
            alive_together = a.start <= b.stop and b.start <= a.stop
            overlap = place < other + b.size_bytes and other < place + a.size_bytes
            assert not (alive_together and overlap)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_evaluation_needs_a_fraction_of_the_memory_of_training(dropout: float) -> None:
    graph = decoder(dropout=dropout)
    training, evaluation = (make_plan(graph, 4, trains=trains).slot_bytes for trains in (True, False))
    assert evaluation < training / 2


def test_without_dropout_the_residual_stream_has_one_buffer_for_its_deltas() -> None:
    plan = make_plan(decoder(layers=2), 2, trains=True)
    residuals = [p for p in plan.ops if p.op.kind == "residual"]
    assert {p.delta_output for p in residuals} == {"delta/residual.2"}
    written = [(d.written, d.after) for p in residuals for d in p.delta_inputs if d is not None]
    assert set(written) == {("delta/residual.2", After.NOTHING)}


def test_the_deltas_of_query_key_and_value_are_added_in_a_fixed_order() -> None:
    plan = make_plan(decoder(), 2, trains=True)
    found = {
        p.op.name.rpartition("proj_")[2]: p.delta_inputs[0].accumulate
        for p in plan.ops
        if "proj_" in p.op.name and p.op.kind == "linear" and p.delta_inputs[0] is not None
    }
    assert found == {"q_dense_layer": True, "k_dense_layer": True, "v_dense_layer": False, "output_dense_layer": False}


def test_graph_inputs_get_no_delta() -> None:
    plan = make_plan(fc_mnist(), 5, trains=True)
    assert plan.ops[0].delta_inputs == (None,)
    assert plan.ops[-1].delta_inputs[1:] == (None, None)


WIDTH, SEQUENCE = 4, 2
ATTENTION = {"heads": 2, "kv_heads": 2, "scale": 0.5, "softcap": 2.0, "slopes": (0.5, 0.25), "window": None, "sinks": 0}
ATTRIBUTES: dict[OpKind, dict[str, object]] = {
    OpKind.LINEAR: {},
    OpKind.FIXED_POSITION_EMBEDDING: {},
    OpKind.SCALE: {"factor": 1.5},
    OpKind.LAYER_NORM: {"epsilon": 1e-2},
    OpKind.RMS_NORM: {"epsilon": 1e-2},
    OpKind.ACTIVATION: {"function": "gelu"},
    OpKind.GATED_ACTIVATION: {"function": "silu"},
    OpKind.RESIDUAL: {},
    OpKind.ROTARY: {"head_width": 4, "frequencies": (0.7,), "amplitude": 1.5},
    OpKind.ATTENTION: ATTENTION,
}
VECTORS = {
    OpKind.LINEAR: 1,
    OpKind.LAYER_NORM: 2,
    OpKind.RMS_NORM: 1,
    OpKind.ACTIVATION: 1,
    OpKind.GATED_ACTIVATION: 2,
    OpKind.RESIDUAL: 1,
}
INPUTS = {OpKind.RESIDUAL: 2, OpKind.GATED_ACTIVATION: 2, OpKind.ATTENTION: 3}
LOSS = {"logits_scale": 0.5, "logits_softcap": 3.0}
CONSTANT = Initializer("constant")


def wire(steps: list[tuple[OpKind, list[int], float]]) -> Graph:
    """Build a graph in which any tensor may have any number of readers.

    Args:
        steps: (kind, inputs: how many tensors back, dropout) of each op; what nobody reads is added up for the loss
    """
    ops, tensors, weights = [], [], []
    names = ["h"]

    def add(kind: OpKind, inputs: list[str], dropout: float = 0.0) -> None:
        op, out = f"op{len(ops)}.{kind}", f"t{len(ops)}"
        own = [Weight(f"{op}.{i}", (WIDTH,), CONSTANT) for i in range(VECTORS.get(kind, 0))]
        if kind is OpKind.LINEAR:
            own.insert(0, Weight(f"{op}.weight", (WIDTH, WIDTH), CONSTANT))
        attributes = {**ATTRIBUTES[kind], "dropout": dropout}
        ops.append(Op(kind, op, tuple(inputs), (out,), tuple(weight.name for weight in own), attributes))
        tensors.append(Tensor(out, (SEQUENCE, WIDTH)))
        weights.extend(own)
        names.append(out)

    add(OpKind.LINEAR, ["h"])
    del names[0]
    for kind, back, dropout in steps:
        add(kind, [names[-1 - n % len(names)] for n in back[: INPUTS.get(kind, 1)]], dropout)
    read = {name for op in ops for name in op.inputs}
    loose = [tensor.name for tensor in tensors if tensor.name not in read]
    while len(loose) > 1:
        add(OpKind.RESIDUAL, [loose.pop(), loose.pop()])
        loose.append(names[-1])
    ops.append(Op(OpKind.SOFTMAX_LOSS, "last", (loose[0], "labels", "mask"), ("loss",), ("last.weight",), LOSS))
    tensors.append(Tensor("loss", (SEQUENCE,)))
    weights.append(Weight("last.weight", (10, WIDTH), CONSTANT))
    shape = (SEQUENCE,)
    inputs = (Tensor("h", (SEQUENCE, WIDTH)), Tensor("labels", shape, "int32"), Tensor("mask", shape))
    graph = Graph("wired", inputs, (Segment(tuple(ops), tuple(tensors), tuple(weights)),), "loss")
    verify(graph)
    return graph


def check_gradients(graph: Graph) -> None:
    """Run a step and compare every gradient with the slope of the model."""
    batch = random_batch(graph, 2)
    with machine(graph, 2) as appliance:
        appliance.train_step(batch, 1, 0.1)
        weights, gradients = arrays_of(appliance, "model."), arrays_of(appliance, "optimizer.", ".gradient")
    assert_gradients(graph, weights, gradients, batch, 1 / batch.tokens, 1)


def afters(graph: Graph, name: str) -> list[tuple[bool, After]]:
    """Return how the deltas of a tensor are made, in the order of backward."""
    planned = make_plan(graph, 2, trains=True).ops
    return [
        (delta.accumulate, delta.after)
        for p in reversed(planned)
        for source, delta in zip(p.op.inputs, p.delta_inputs, strict=True)
        if source == name and delta is not None
    ]


def test_a_kernel_that_cannot_accumulate_writes_elsewhere_and_the_runtime_adds() -> None:
    """t0 feeds two linear layers and, before them, an activation."""
    graph = wire([(OpKind.ACTIVATION, [0], 0.0), (OpKind.LINEAR, [1], 0.0), (OpKind.LINEAR, [2], 0.0)])
    assert afters(graph, "t0") == [(False, After.NOTHING), (True, After.NOTHING), (False, After.ADD)]
    check_gradients(graph)


def test_a_delta_that_two_inputs_of_a_residual_may_not_share_is_copied() -> None:
    """t1 = activation(t0) is joined with t0: the activation writes over the delta of t1, which t0 still needs."""
    graph = wire([(OpKind.ACTIVATION, [0], 0.0), (OpKind.RESIDUAL, [0, 1], 0.0)])
    assert (False, After.COPY) in afters(graph, "t0") + afters(graph, "t1")
    check_gradients(graph)


def test_a_residual_of_a_tensor_with_itself_counts_twice() -> None:
    check_gradients(wire([(OpKind.RESIDUAL, [0, 0], 0.0)]))


IN_PLACE = [OpKind.SCALE, OpKind.ROTARY, OpKind.FIXED_POSITION_EMBEDDING, OpKind.GATED_ACTIVATION]


@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_delta_written_over_that_of_the_output_is_not_needed_by_anyone_else(kind: OpKind, dropout: float) -> None:
    """t1 = op(t0) is joined with t0, then with what another op makes of t0."""
    joined = (OpKind.RESIDUAL, [0, 1], 0.0)
    check_gradients(wire([(kind, [0, 0], dropout), joined]))
    check_gradients(wire([(kind, [0, 0], dropout), joined, (kind, [2, 1], dropout), joined]))


def test_a_gate_of_the_same_tensor_counts_twice() -> None:
    check_gradients(wire([(OpKind.LINEAR, [0], 0.0), (OpKind.GATED_ACTIVATION, [0, 0], 0.3)]))


def test_a_chain_of_ops_in_place_has_one_buffer_for_its_deltas() -> None:
    graph = wire([(OpKind.SCALE, [0], 0.3), (OpKind.ROTARY, [0], 0.0), (OpKind.FIXED_POSITION_EMBEDDING, [0], 0.3)])
    chain = make_plan(graph, 2, trains=True).ops[1:-1]
    places = {delta.target for p in chain for delta in p.delta_inputs if delta is not None}
    assert len(chain) == 3
    assert places == {"delta/t3"}
    check_gradients(graph)


steps = st.tuples(
    st.sampled_from(list(ATTRIBUTES)), st.lists(st.integers(0, 4), min_size=3, max_size=3), st.sampled_from([0.0, 0.3])
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(steps, min_size=1, max_size=7))
def test_gradients_are_right_whoever_reads_what(steps: list[tuple[OpKind, list[int], float]]) -> None:
    check_gradients(wire(steps))
