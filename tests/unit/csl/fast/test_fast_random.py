"""Random programs: both engines have the same values, cycles, counts, waits, and errors."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cstool.csl.fabric.time_model import BUSY_WAFER
from tests.examples import examples
from tests.unit.csl.fast.judge import differences, function_launches
from tests.unit.csl.fast.random_programs import memory_program, random_program

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.takes("the engine is compiled first")
@examples(30)
@example(seed=30075)  # a flush ends while the picker takes a wavelet
@given(seed=seeds)
def test_random_programs_on_both_engines(seed):
    program = random_program(seed)
    assert differences(program, function_launches(program)) == []


@pytest.mark.takes("twenty programs on two engines, one of them in Python")
@examples(20)
@given(seed=seeds)
def test_random_programs_on_a_busy_wafer(seed):
    """Its PEs are slower than its fabric; a multiply-add rounds twice."""
    program = random_program(seed)
    assert differences(program, function_launches(program), time_model=BUSY_WAFER, fused=False) == []


@examples(50)
@given(seed=seeds)
def test_all_operations_on_memory(seed):
    """Strides of all kinds, operands on top of each other, numbers of all kinds."""
    program = memory_program(seed)
    assert differences(program, function_launches(program)) == []
