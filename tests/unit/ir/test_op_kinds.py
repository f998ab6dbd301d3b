"""What is so of every op of a kind."""

import pytest

from cstool.ir import OP_RULES, Delta, OpKind


@pytest.mark.parametrize("kind", OpKind)
def test_the_shapes_of_what_is_kept_follow_from_attributes_and_tokens(kind):
    expected: dict[OpKind, dict[str, tuple[int, ...]]] = {
        OpKind.LAYER_NORM: {"mean": (24,), "rstd": (24,)},
        OpKind.RMS_NORM: {"rstd": (24,)},
        OpKind.ATTENTION: {"logsumexp": (2, 24)},
        OpKind.SOFTMAX_LOSS: {"state": (4, 24)},
    }
    assert OP_RULES[kind].statistics_shapes({"heads": 2, "kv_heads": 1}, 24) == expected.get(kind, {})


def test_the_delta_of_a_branch_is_that_of_the_sum_unless_some_of_it_is_dropped():
    rules = OP_RULES[OpKind.RESIDUAL]
    found = [rules.delta({"dropout": rate}, index) for rate in (0.0, 0.1) for index in (0, 1)]
    assert found == [Delta.SAME, Delta.SAME, Delta.COMPUTED, Delta.SAME]


def test_the_delta_of_a_sum_with_fixed_positions_is_that_of_the_sum_unless_some_of_it_is_dropped():
    rules = OP_RULES[OpKind.FIXED_POSITION_EMBEDDING]
    assert [rules.delta({"dropout": rate}, 0) for rate in (0.0, 0.1)] == [Delta.SAME, Delta.IN_PLACE]


def test_the_delta_of_a_gate_needs_a_buffer_of_its_own():
    rules = OP_RULES[OpKind.GATED_ACTIVATION]
    assert [rules.delta({}, index) for index in (0, 1)] == [Delta.IN_PLACE, Delta.COMPUTED]
