"""Functions of vectors on a PE, over the ranges that models meet, beside float64."""

import numpy as np
import pytest

from cstool.csl.language.compile import compile_csl
from cstool.csl.models.gpt_program import SOURCES
from cstool.csl.models.simulated import SimulatedFabric

N, UNIT = 64, 2.0**-24
LAYOUT = """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 1, .height = 1 });
layout {
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(0) });
  @export_name("x", [*]f32, true);
  @export_name("y", [*]f32, true);
  @export_name("exponential", fn()void);
  @export_name("reciprocal", fn()void);
  @export_name("inverse_root", fn()void);
  @export_name("logarithm", fn()void);
}
"""
PE = f"""
param memcpy_params;
const memcpy = @import_module("<memcpy/memcpy>", memcpy_params);
var work = @zeros([4, {N}]f32);
var x = @zeros([{N}]f32);
var y = @zeros([{N}]f32);
const x_pointer: [*]f32 = &x;
const y_pointer: [*]f32 = &y;
const functions = @import_module("functions.csl", .{{
  .work = [4][*]f32{{
    &work, @ptrcast([*]f32, &work[1, 0]), @ptrcast([*]f32, &work[2, 0]), @ptrcast([*]f32, &work[3, 0]),
  }},
}});
const first = functions.vector(&work, {N});
const second = functions.vector(@ptrcast([*]f32, &work[1, 0]), {N});
const of_x = functions.vector(&x, {N});
const of_y = functions.vector(&y, {N});
fn exponential() void {{
  @fmovs(of_y, of_x);
  functions.exponential(of_y, {N});
  memcpy.unblock_cmd_stream();
}}
fn reciprocal() void {{
  @fmovs(first, of_x);
  functions.reciprocal({N});
  @fmovs(of_y, second);
  memcpy.unblock_cmd_stream();
}}
fn inverse_root() void {{
  functions.inverse_root(&x, &y, {N});
  memcpy.unblock_cmd_stream();
}}
fn logarithm() void {{
  functions.logarithm(&x, of_y, {N});
  memcpy.unblock_cmd_stream();
}}
comptime {{
  @export_symbol(x_pointer, "x");
  @export_symbol(y_pointer, "y");
  @export_symbol(exponential);
  @export_symbol(reciprocal);
  @export_symbol(inverse_root);
  @export_symbol(logarithm);
}}
"""


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    (folder / "layout.csl").write_text(LAYOUT)
    (folder / "pe.csl").write_text(PE)
    (folder / "functions.csl").write_text((SOURCES / "pieces/functions.csl").read_text())
    return SimulatedFabric(compile_csl(folder / "layout.csl", "wse3"))


POSITIVE = np.concatenate([np.geomspace(1e-30, 1e30, 31), np.linspace(0.5, 2.0, 31), [2.0**-0.5, 1 + 2**-20]])
CASES = {
    # An exponent is rounded to 24 bits once: an error of its power that grows with it.
    "exponential": (np.concatenate([np.linspace(-87, 0, 63), [-1e4]]), np.exp, lambda x, y: 4 + np.abs(x)),
    "reciprocal": (POSITIVE, lambda x: 1 / x, lambda x, y: 4),
    "inverse_root": (POSITIVE, lambda x: x**-0.5, lambda x, y: 6),
    "logarithm": (POSITIVE, np.log, lambda x, y: 3 + 1 / np.maximum(np.abs(y), 1e-30)),
}  # fmt: skip


@pytest.mark.takes("a program compiled and simulated")
@pytest.mark.parametrize("name", CASES)
def test_units_in_the_last_place(fabric, name):
    x, function, units = CASES[name]
    x = x.astype(np.float32)
    fabric.put("x", x.reshape(1, 1, N))
    fabric.call(name)
    found = fabric.get("y", (1, 1, N), np.float32).ravel()
    exact = function(x.astype(np.float64))
    assert (np.abs(found - exact) <= units(x, exact) * UNIT * np.abs(exact) + 2.0**-126).all()
