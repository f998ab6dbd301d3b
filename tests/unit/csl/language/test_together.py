"""Turns of a layout's loops that run together do what they do one after the other, which is the twin here."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.language import together
from cstool.csl.language.source import CslError
from cstool.csl.language.together import Apart, Part, Spread, spread
from tests.unit.csl.language.comptime_cases import layout_of

PE = "param a = 0; param b = 0; param has = {}; param c = {};"
FORM = """
const limit: u16 = 5;
fn parity(n: u16) u16 {{ return n % 2; }}
fn forties(n: u16) u16 {{
  var left: u16 = n;
  var times: u16 = 0;
  while (left > 40) {{ left -= 40; times += 1; }}
  return times;
}}
fn near(x: u16, y: u16) comptime_struct {{ return .{{ .first = y == 0, .last = y == {height} - 1, .same = x == y }}; }}
layout {{
  @set_rectangle({width}, {height});
  var seen: u16 = 0;
  for (@range(u16, {width})) |x| {{
    for (@range(u16, {height})) |y, i| {{
      {body}
    }}
  }}
}}
"""
ROUTE = ".{ .routes = .{ .rx = .{ %s }, .tx = .{ %s } } }"
CONDITIONS = (
    "y > 0",
    "y + 1 < limit * 3",
    "x < y",
    "parity(x + y) == 1",
    "near(x, y).same",
    "(y / 4) * 4 == y and x != 2",
    "y - x > 3",
    "forties(y) == 1",
    "@as(u16, i) & 8 == 8",
    "seen == 0",
)
PARAMS = (
    "",
    ".a = parity(y)",
    ".a = x, .b = y / 16",
    ".has = near(x, y)",
    ".c = @get_color(8 + (x + 2 * y) % 5)",
    ".a = @as(u32, y) * 100 / 900",
)
STATEMENTS = (
    '@set_tile_code(x, y, "pe.csl", .{ %s });',
    "@set_color_config(x, y, @get_color(y % 3), " + ROUTE % ("WEST", "EAST") + ");",
    "@set_color_config(x, y, @get_color(5), " + ROUTE % ("RAMP", "NORTH, SOUTH") + ");",
    "@set_color_config(x, 3, @get_color(6), " + ROUTE % ("RAMP", "NORTH") + ");",
    "@set_color_config(x, y / 2, @get_color(7), " + ROUTE % ("RAMP", "NORTH") + ");",
    "@set_color_config(x, y + 1, @get_color(4), " + ROUTE % ("NORTH", "RAMP") + ");",
    "seen += 1;",
    "continue;",
    "break;",
    'const part = y / 8; switch (part) { 0 => @set_tile_code(x, y, "pe.csl", .{ .a = part }), else => {} }',
    "for (@range(u16, 3)) |k| { if (y % 3 == k) @set_color_config(x, y, @get_color(11 + k), "
    + ROUTE % ("RAMP", "WEST")
    + "); }",
)


def outcome(folder: Path, text: str, fewest: int) -> "FabricProgram | str":
    """The program, or the whole message of the error."""
    with patch.object(together, "FEWEST", fewest):
        try:
            return layout_of(folder, text, {"pe.csl": PE}, arch="wse2")
        except CslError as error:
            return str(error)


def check_same(folder: Path, text: str) -> "FabricProgram | str":
    """Both ways have one outcome."""
    apart, both = outcome(folder, text, 1_000_000), outcome(folder, text, 8)
    if isinstance(apart, str) or isinstance(both, str):
        assert both == apart
        return both
    assert both.programs == apart.programs
    assert both.configs == apart.configs
    assert np.array_equal(both.tiles, apart.tiles)
    assert list(both.routes) == list(apart.routes)
    assert all(np.array_equal(both.routes[color], apart.routes[color]) for color in apart.routes)
    return both


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """The body of a loop over PEs: a program for each, in most cases, and some of the statements under conditions."""
    lines = [STATEMENTS[0] % draw(st.sampled_from(PARAMS))] if draw(st.integers(0, 9)) else []
    for line in draw(st.lists(st.sampled_from(STATEMENTS[len(lines) :]), min_size=1, max_size=4, unique=True)):
        filled = line % draw(st.sampled_from(PARAMS)) if "%s" in line else line
        lines.append(f"if ({draw(st.sampled_from(CONDITIONS))}) {{ {filled} }}")
    return "\n".join(draw(st.permutations(lines)))


@given(bodies(), st.integers(1, 9), st.sampled_from((8, 23, 70)))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.takes("150 layouts, each twice")
def test_turns_together_do_what_they_do_one_by_one(tmp_path: Path, body: str, width: int, height: int) -> None:
    check_same(tmp_path, FORM.format(body=body, width=width, height=height))


def ran_together(text: str, folder: Path) -> list[bool]:
    """For each loop that was run: whether its turns ran together."""
    ran = []
    run = together.Together.run

    def watched(self: together.Together, *arguments: object) -> bool:
        ran.append(run(self, *arguments))  # type: ignore[arg-type]
        return ran[-1]

    with patch.object(together.Together, "run", watched):
        outcome(folder, text, 8)
    return ran


def loop(body: str) -> str:
    """A layout of a column of 40 PEs."""
    return FORM.format(body=body, width=1, height=40)


EVERY = '@set_tile_code(x, y, "pe.csl", .{});'


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        (EVERY, True),
        ("if (y < 3) continue; " + EVERY, True),
        ("var t: u16 = y % 4; t += 1; " + '@set_tile_code(x, y, "pe.csl", .{ .a = t });', True),
        ("seen += 1; " + EVERY, False),
        ("if (y == 7) break; " + EVERY, False),
        ('@comptime_print("turn"); ' + EVERY, False),
        ('@set_tile_code(x, y, "pe.csl", .{ .a = y });', False),
    ],
)
def test_bodies_that_run_together(tmp_path: Path, body: str, runs: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran_together(loop(body), tmp_path)[-1] is runs
    check_same(tmp_path, loop(body))
    assert capsys.readouterr().out.count("turn") in (0, 3 * 40)


def test_the_first_error_of_the_turns_is_told(tmp_path: Path) -> None:
    text = loop("if (y == 20) @assert_that(); " + EVERY)
    message = check_same(tmp_path, text)
    assert isinstance(message, str)
    assert "unknown builtin @assert_that" in message
    twice = check_same(tmp_path, loop(EVERY + ' if (y == 20) @set_tile_code(x, y - 3, "pe.csl", .{});'))
    assert "a PE has one program, got another for 0,17" in str(twice)
    outside = check_same(
        tmp_path, loop("@set_color_config(x, y + 5, @get_color(2), " + ROUTE % ("RAMP", "EAST") + ");")
    )
    assert "a PE of the rectangle is 0,0 to 0,39, got 0,40" in str(outside)


# --- spreads ---


def groups_of(action: object) -> list[list[int]]:
    """The groups into which a look at a spread parts the turns."""
    with pytest.raises(Part) as part:
        action()  # type: ignore[operator]
    return [group.tolist() for group in part.value.groups]


def test_a_look_at_a_spread_parts_the_turns() -> None:
    numbers = Spread(np.array([4, 9, 4, 1]))
    assert groups_of(lambda: numbers > 3) == [[0, 1, 2], [3]]
    assert groups_of(lambda: hash(numbers)) == [[3], [0, 2], [1]]
    assert groups_of(lambda: f"{numbers}") == groups_of(lambda: int(numbers)) == [[3], [0, 2], [1]]
    assert groups_of(lambda: [0] * 20 and range(20)[numbers]) == [[3], [0, 2], [1]]
    assert (numbers >= 1, numbers == 77, numbers < 10) == (True, False, True)


@given(st.lists(st.integers(-1000, 1000), min_size=2), st.integers(1, 50))
def test_a_spread_computes_as_its_numbers_do(numbers: list[int], other: int) -> None:
    here = spread(np.array(numbers))
    found = [here + other, other - here, here * other, here % other, here // other, -here, abs(here), here & other]
    wanted = [
        [number + other, other - number, number * other, number % other, number // other, -number, abs(number)]
        + [number & other]
        for number in numbers
    ]
    for each, right in zip(found, zip(*wanted, strict=True), strict=True):
        assert (each.numbers.tolist() if isinstance(each, Spread) else [each] * len(numbers)) == list(right)
        assert isinstance(each, int) == (len(set(right)) == 1)


@pytest.mark.parametrize(
    "action", ["n % 0", "n / 2", "n << 1", "n + 0.5", "n * n * n", "5 % n", "n[0]", "len(n)", "n.x"]
)
def test_what_a_spread_cannot_do_ends_the_attempt(action: str) -> None:
    with pytest.raises(Apart):
        eval(action, {"n": Spread(np.array([1, 2**30]))})
