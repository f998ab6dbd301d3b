"""Two strips of rows in two threads have the bits of one: values, cycles, counts, waits, and errors."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fast.simulation import FastSimulation
from cstool.csl.language.compile import compile_csl
from tests.examples import examples
from tests.unit.csl.fast.judge import function_launches, outcome
from tests.unit.csl.fast.random_programs import random_program

EXAMPLES = Path(__file__).parents[4] / "examples" / "csl"


def outcomes(program, launches, max_cycles=3000):
    """What is seen of a program on one strip, and on two, with the memory of each PE."""
    for strips in (1, 2):
        simulation, seen = outcome(FastSimulation(program, max_cycles=max_cycles, strips=strips), launches)
        yield seen, [bytes(pe.u8) for pe in simulation.pes] if seen["error"] is None else None


@pytest.mark.takes("the engine is compiled first")
@pytest.mark.parametrize("arch", ["wse2", "wse3"])
@pytest.mark.parametrize(("name", "function"), [("summa", "multiply"), ("stencil", "run"), ("column_reduce", "reduce")])
def test_examples_on_two_strips(name, function, arch):
    program = compile_csl(EXAMPLES / name / "layout.csl", arch, {})
    one, two = outcomes(program, function_launches(program, function), 30_000)
    assert one == two
    assert one[0]["error"] is None
    assert sum(pe.sent for pe in one[0]["PEs"]) > 20


@examples(30)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_programs_on_two_strips(seed):
    program = random_program(seed)
    one, two = outcomes(program, function_launches(program))
    assert one == two
