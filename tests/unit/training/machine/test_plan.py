"""The plan: buffers that are alive together never overlap, and deltas of a fan-out are added."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import Graph, Initializer, Loss, Op, OpKind, Segment, Tensor, Weight, read_backward, verify
from cstool.training.machine.plan import ALIGNMENT_BYTES, After, Plan, _Life, _place, make_plan
from cstool.training.machine.precision import narrow_parts
from tests.examples import examples
from tests.models import FAMILIES, KINDS, PREFERENCES, attentive, decoder, fc_mnist, model_of
from tests.unit.training.machine.machines import arrays_of, check_gradients, machine, random_batch

lives = st.lists(
    st.builds(
        lambda size, moments: _Life((size,), "float32", list(zip(moments[::2], moments[1::2], strict=True))),
        st.integers(1, 2000),
        st.sampled_from([2, 4]).flatmap(lambda n: st.lists(st.integers(0, 20), min_size=n, max_size=n).map(sorted)),
    ),
    min_size=1,
    max_size=30,
)
"""of one span of time or two"""


@given(lives)
def test_buffers_that_are_alive_together_never_overlap(lives):
    buffers, slot_bytes = _place({str(i): life for i, life in enumerate(lives)})
    for i, a in enumerate(lives):
        place = buffers[str(i)].offset_bytes
        assert place % ALIGNMENT_BYTES == 0
        assert place + a.size_bytes <= slot_bytes
        for j, b in enumerate(lives[:i]):
            other = buffers[str(j)].offset_bytes
            alive_together = any(p <= t and s <= q for p, q in a.spans for s, t in b.spans)
            overlap = place < other + b.size_bytes and other < place + a.size_bytes
            assert not (alive_together and overlap)


def test_a_buffer_shares_its_place_with_what_lives_between_its_two_spans():
    found, slot_bytes = _place(
        {"kept": _Life((16,), "float32", [(0, 9)])}
        | {name: _Life((16,), "float32", [(i, i), (9 - i, 9 - i)]) for i, name in enumerate("abcd")}
    )
    assert slot_bytes == 2 * 64
    assert {name: buffer.offset_bytes for name, buffer in found.items()} == {"kept": 0, **dict.fromkeys("abcd", 64)}


GRAPHS: dict[str, Graph] = {
    "fc_mnist": fc_mnist(5, 7, 3, 4),
    "gpt2, dropout": decoder(layers=4, dropout=0.1),
    "one layer": decoder(),
    **{name: model_of(name, layers=3) for _, models in KINDS for name in models if name not in PREFERENCES},
}


class Memory:
    """The slot of a grain in which every byte remembers the buffer, and how often that had been made by then."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.bytes = np.full(plan.slot_bytes, -1)
        self.marks: dict[str, int] = {}
        self.spans: list[list[Any]] = []
        """name of a buffer, when it was made, when it was last read"""

    def write(self, moment: int, *names: str) -> None:
        for name in names:
            self.marks[name] = len(self.spans)
            self.spans.append([name, moment, moment])
            self.bytes[self.place(name)] = self.marks[name]

    def read(self, moment: int, *names: str) -> None:
        for name in names:
            assert (self.bytes[self.place(name)] == self.marks[name]).all(), f"{name} was overwritten"
            self.spans[self.marks[name]][2] = moment

    def place(self, name: str) -> slice:
        buffer = self.plan.buffers[name]
        return slice(buffer.offset_bytes, buffer.offset_bytes + buffer.size_bytes)

    def most_alive_bytes(self) -> int:
        alive = np.zeros(len(self.plan.timeline.visits), int)
        for name, start, stop in self.spans:
            size = self.plan.buffers[name].size_bytes
            alive[start : stop + 1] += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return int(alive.max())


def walk(graph: Graph, plan: Plan) -> Memory:
    """Go through a step, and see that whatever is read is what was written there last."""
    memory = Memory(plan)
    memory.write(0, *(tensor.name for tensor in graph.inputs))
    for now, (position, forward) in enumerate(plan.timeline.visits):
        if now == plan.timeline.ops:
            memory.read(now - 1, *plan.gathered)
            memory.write(now, *(delta for delta in plan.gathered.values() if delta is not None))
        p = plan.ops[position]
        made = (*p.op.outputs, *p.kept.values())
        if forward:
            memory.write(now, *made)
            memory.read(now, *p.op.inputs, *made)
            continue
        deltas = [delta for delta in p.delta_inputs if delta is not None]
        memory.write(now, *(d.written for d in deltas if d.written not in p.delta_outputs and not d.accumulate))
        memory.read(now, *(name for name in p.delta_outputs if name is not None), *(d.written for d in deltas))
        memory.read(now, *read_backward(p.op), *p.kept.values())
        memory.write(now, *(d.target for d in deltas if d.after is After.COPY))
        memory.read(now, *(d.target for d in deltas))
    memory.read(now, *(tensor.name for tensor in graph.inputs))
    return memory


@pytest.mark.parametrize(
    ("model", "choice"), [*((m, "recomputes") for m in GRAPHS), *((m, "keeps") for m in GRAPHS), ("gpt2", "neither")]
)
def test_nothing_is_overwritten_that_is_read_later_and_no_byte_is_wasted(model, choice):
    plan = make_plan(GRAPHS[model], 2, trains=True, keeps=choice == "keeps", recomputes=choice == "recomputes")
    assert walk(GRAPHS[model], plan).most_alive_bytes() == plan.slot_bytes


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "mixtral"])
def test_a_layer_more_takes_no_more_than_what_crosses_its_boundary(family):
    """Of 2 samples of 8 tokens, that is one residual of float32."""
    graphs = {layers: decoder(layers=layers, dropout=0.1, **FAMILIES[family]) for layers in (6, 7, 20)}
    hidden = graphs[6].tensors["residual.1"].shape[-1]
    sizes = {layers: make_plan(graph, 2, trains=True, recomputes=True).slot_bytes for layers, graph in graphs.items()}
    assert sizes[7] - sizes[6] == 2 * 8 * hidden * 4
    assert sizes[20] - sizes[6] == 14 * 2 * 8 * hidden * 4


def test_of_a_fully_connected_network_the_activations_stay_and_the_products_do_not():
    """16 samples and 9 layers of 16: a product, an activation or a delta has 1,024 bytes."""
    graph = fc_mnist(*[16] * 9)
    inputs, statistics_of_loss = 4 * 16 * (784 + 1 + 1), 4 * 16 * 4
    kept, recomputed = (make_plan(graph, 16, trains=True, recomputes=choice).slot_bytes for choice in (False, True))
    # When backward begins: products and activations of all layers, and the first delta.
    assert kept == inputs + statistics_of_loss + 1024 * (9 + 9 + 1)
    # The same without the products of all layers but the last.
    assert recomputed == inputs + statistics_of_loss + 1024 * (1 + 9 + 1)


def test_logits_that_are_kept_take_the_place_of_deltas_that_come_after_them():
    """16 samples, 10 classes: of a network of one width the first delta comes while they are there."""
    graph = fc_mnist(*[16] * 9)
    less, more = (make_plan(graph, 16, trains=True, keeps=choice) for choice in (False, True))
    assert more.buffers["last_layer/logits"].shape == (10, 16)
    assert more.slot_bytes - less.slot_bytes == 4 * 10 * 16
    assert (less.keeps, more.keeps) == (False, True)


def test_logits_that_are_bent_in_place_are_not_kept():
    models = [(FAMILIES["gpt2"], True), (FAMILIES["gemma2"], False), ({"output_logits_scale": 0.5}, False)]
    for keys, keeps in models:
        plan = make_plan(decoder(**keys), 2, trains=True, keeps=True)
        assert ("lm_head/logits" in plan.buffers) == keeps


def test_evaluation_needs_a_fraction_of_the_memory_of_training():
    graph = decoder(dropout=0.1)
    training, evaluation = (make_plan(graph, 4, trains=trains).slot_bytes for trains in (True, False))
    assert evaluation < training / 2


def test_without_dropout_the_residual_stream_has_one_buffer_for_its_deltas():
    plan = make_plan(decoder(layers=2), 2, trains=True)
    residuals = [p for p in plan.ops if p.op.kind == "residual"]
    assert {p.delta_outputs for p in residuals} == {("delta/residual.2",)}
    written = [(d.written, d.after) for p in residuals for d in p.delta_inputs if d is not None]
    assert set(written) == {("delta/residual.2", After.NOTHING)}


def test_graph_inputs_get_no_delta():
    plan = make_plan(fc_mnist(), 5, trains=True)
    assert plan.ops[0].delta_inputs == (None,)
    assert plan.ops[-1].delta_inputs[1:] == (None, None)


WIDTH, SEQUENCE, LAYER_OPS = 4, 2, 3
ATTENTION = {"heads": 2, "kv_heads": 2, "scale": 0.5, "softcap": 2.0, "slopes": (0.5, 0.25), "causal": True}
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
        op, out = f"layers.{len(ops) // LAYER_OPS}.op{len(ops)}.{kind}", f"t{len(ops)}"
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
    graph = Graph("wired", inputs, (Segment(tuple(ops), tuple(tensors), tuple(weights)),), (Loss("loss"),))
    verify(graph)
    return graph


def afters(graph: Graph, name: str) -> list[tuple[bool, After]]:
    """Return how the deltas of a tensor are made, in the order of backward."""
    planned = make_plan(graph, 2, trains=True).ops
    return [
        (delta.accumulate, delta.after)
        for p in reversed(planned)
        for source, delta in zip(p.op.inputs, p.delta_inputs, strict=True)
        if source == name and delta is not None
    ]


def test_a_kernel_that_cannot_accumulate_writes_elsewhere_and_the_runtime_adds():
    """t0 feeds two linear layers and, before them, an activation."""
    graph = wire([(OpKind.ACTIVATION, [0], 0.0), (OpKind.LINEAR, [1], 0.0), (OpKind.LINEAR, [2], 0.0)])
    assert afters(graph, "t0") == [(False, After.NOTHING), (True, After.NOTHING), (False, After.ADD)]
    check_gradients(graph, 2, 1)


def test_a_delta_that_two_inputs_of_a_residual_may_not_share_is_copied():
    """t1 = activation(t0) is joined with t0: the activation writes over the delta of t1, which t0 still needs."""
    graph = wire([(OpKind.ACTIVATION, [0], 0.0), (OpKind.RESIDUAL, [0, 1], 0.0)])
    assert (False, After.COPY) in afters(graph, "t0") + afters(graph, "t1")
    check_gradients(graph, 2, 1)


JOINED = (OpKind.RESIDUAL, [0, 1], 0.0)
IN_PLACE = [
    (OpKind.SCALE, 0.0),
    (OpKind.ROTARY, 0.3),
    (OpKind.FIXED_POSITION_EMBEDDING, 0.0),
    (OpKind.GATED_ACTIVATION, 0.3),
]


@pytest.mark.parametrize(
    "steps",
    [
        # An op of a tensor with itself counts twice.
        [(OpKind.RESIDUAL, [0, 0], 0.0)],
        [(OpKind.LINEAR, [0], 0.0), (OpKind.GATED_ACTIVATION, [0, 0], 0.3)],
        # A delta written over that of the output is needed by nobody else: t1 = op(t0) is joined with t0, then with
        # what another op makes of t0.
        *([(kind, [0, 0], dropout), JOINED, (kind, [2, 1], dropout), JOINED] for kind, dropout in IN_PLACE),
    ],
)
def test_deltas_of_a_tensor_that_is_read_twice(steps):
    check_gradients(wire(steps[:2]), 2, 1)
    check_gradients(wire(steps), 2, 1)


def test_a_chain_of_ops_in_place_has_one_buffer_for_its_deltas():
    graph = wire([(OpKind.SCALE, [0], 0.3), (OpKind.ROTARY, [0], 0.0), (OpKind.FIXED_POSITION_EMBEDDING, [0], 0.3)])
    chain = make_plan(graph, 2, trains=True).ops[1:-1]
    places = {delta.target for p in chain for delta in p.delta_inputs if delta is not None}
    assert len(chain) == 3
    assert places == {"delta/t3"}
    check_gradients(graph, 2, 1)


@pytest.mark.parametrize("recompute", ["never", "always"])
def test_what_is_added_to_scores_is_learned(recompute):
    check_gradients(attentive(), 4, 1, recompute=recompute)


def test_segments_are_no_operands_of_products():
    narrow = narrow_parts(attentive())
    assert narrow.tensors == {"q", "k", "v", "x", "y"}
    assert narrow.weights == {"q.weight", "k.weight", "v.weight", "last.weight"}


steps = st.tuples(
    st.sampled_from(list(ATTRIBUTES)), st.lists(st.integers(0, 4), min_size=3, max_size=3), st.sampled_from([0.0, 0.3])
)


@examples(80, derandomize=True)
@given(st.lists(steps, min_size=1, max_size=7))
def test_gradients_are_right_whoever_reads_what(steps):
    check_gradients(wire(steps), 2, 1)


@examples(80, derandomize=True)
@given(st.lists(steps, min_size=3, max_size=11))
def test_recomputing_changes_no_bit_whoever_reads_what(steps):
    graph = wire(steps)
    walk(graph, make_plan(graph, 2, trains=True, recomputes=True))
    batch, found = random_batch(graph, 2), []
    for recompute in ("never", "always"):
        with machine(graph, 2, recompute=recompute) as appliance:
            loss = appliance.train_step(batch, 1, 0.1).loss
            found.append((loss, {n: g.tobytes() for n, g in arrays_of(appliance, "optimizer.", ".gradient").items()}))
    assert found[0] == found[1]
