"""Choices of what is computed again: none, all, and what the others choose between."""

import pytest

from cstool.compiler.compile import PASSES
from cstool.ir import ExecutionMode
from tests.models import decoder
from tests.unit.compiler.programs import a_request, compiled, small_system

MODES = (ExecutionMode.WEIGHT_STREAMING, ExecutionMode.PIPELINED)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("choice", "levels"), [("none", 0), ("all", 1)])
def test_none_is_none_and_all_is_every_layer_once(mode, choice, levels):
    request = a_request(small_system(40, 60), 8, recompute=choice, execution_mode=mode)
    program = compiled(decoder(layers=3), PASSES, request)
    assert program.recompute[mode].levels == levels
    assert program.recompute[mode].kept_blocks == (3 if levels and mode is MODES[0] else 0)


@pytest.mark.parametrize("mode", MODES)
def test_the_fastest_is_no_slower_than_any_other_choice(mode):
    steps = {
        choice: compiled(
            decoder(layers=3),
            PASSES,
            a_request(small_system(40, 60), 64, recompute=choice, execution_mode=mode),
        ).step_cycles[mode]
        for choice in ("none", "all", "needed", "fastest")
    }
    assert steps["fastest"] <= min(steps.values())


def test_a_model_without_layers_in_a_row_has_nothing_to_compute_again():
    """One layer: to run it again from its input would hold that in addition."""
    request = a_request(small_system(40, 60), 8, recompute="all")
    program = compiled(decoder(layers=1), PASSES, request)
    assert program.recompute[MODES[0]].levels == 0


def test_the_reason_says_that_it_was_asked_for():
    request = a_request(small_system(40, 60), 8, recompute="all")
    program = compiled(decoder(layers=3), PASSES, request)
    assert "layers are computed again in the backward pass, 1x: all of them are to be" in program.reasons
