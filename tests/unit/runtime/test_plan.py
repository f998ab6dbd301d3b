"""The plan: buffers that are alive together never overlap, and deltas of a fan-out are added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.runtime.plan import ALIGNMENT_BYTES, After, _Life, _place, make_plan
from tests.models import decoder, fc_mnist


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
