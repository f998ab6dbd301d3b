"""Two strips of rows in two threads have the bits of one: values, cycles, counts, waits, and errors."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cstool.csl.fabric.simulation import Simulation
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


PROGRAMS = {
    "summa": ("multiply", {"P": 4, "Mt": 4, "Kt": 3, "Nt": 5}),
    "stencil": ("run", {"width": 4, "height": 3, "rows": 4, "columns": 5, "steps": 6}),
    "column_reduce": ("reduce", {"width": 4, "height": 3, "n": 8}),
}
"""examples whose wavelets go from row to row: the function of the host, and parameters"""


@pytest.mark.takes("the engine is compiled first")
@pytest.mark.parametrize("arch", ["wse2", "wse3"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_on_two_strips(name, arch):
    function, params = PROGRAMS[name]
    program = compile_csl(EXAMPLES / name / "layout.csl", arch, params)
    one, two = outcomes(program, function_launches(program, function), 30_000)
    assert one == two
    assert one[0]["error"] is None
    assert sum(pe.sent for pe in one[0]["PEs"]) > 20


LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 1, .height = 2 });
layout {
  @set_rectangle(1, 2);
  for (@range(i16, 2)) |y| @set_tile_code(0, y, "pe.csl", .{ .memcpy_params = memcpy.get_params(0), .row = y });
  @export_name("go", fn() void);
}
"""
PE = """
param memcpy_params: comptime_struct;
param row: i16;
const memcpy = @import_module("<memcpy/memcpy>", memcpy_params);
const prints = @import_module("<simprint>");
fn go() void {
  prints.fmt_no_nl("row {d}\\n", .{ row });
  memcpy.unblock_cmd_stream();
}
comptime { @export_symbol(go); }
"""


@pytest.mark.takes("the engine is compiled first")
def test_lines_of_one_cycle_on_two_strips(tmp_path):
    """The lower row is launched first, and the reference engine tells it first."""
    (tmp_path / "layout.csl").write_text(LAYOUT)
    (tmp_path / "pe.csl").write_text(PE)
    program = compile_csl(tmp_path / "layout.csl", "wse2", {})
    launches = function_launches(program)[::-1]
    simulations = Simulation(program), FastSimulation(program), FastSimulation(program, strips=2)
    reference, one, two = (outcome(simulation, launches)[1]["said"] for simulation in simulations)
    assert [line for _, line in reference] == ["PE 0: row 0", "PE 1: row 1"]
    assert reference == one == two


@pytest.mark.takes("thirty programs, each three times")
@examples(30)
@example(seed=910629)  # `@map` has more operands than all other operations of a PE
@given(seed=st.integers(0, 2**32 - 1))
def test_random_programs_on_two_strips(seed):
    program = random_program(seed)
    one, two = outcomes(program, function_launches(program))
    assert one == two
