import pytest

from cstool.csl.fabric import program
from cstool.csl.fabric.program import ColorConfig
from cstool.csl.language.routes import color_config
from cstool.csl.language.source import CslError, Place, Source
from tests.unit.csl.language.comptime_cases import constant
from tests.unit.csl.language.shown import cases

HERE = Place(Source("layout.csl", "x"), 0, 1)
ROUTES = ".routes = .{ .rx = .{ RAMP }, .tx = .{ NORTH } }"
MODES = ".current_switch_pos = 1, .ring_mode = true, .pop_mode = .{ .pop_on_advance = true }"


def _config(text: str) -> ColorConfig:
    text = text.replace("ROUTES", ROUTES).replace("MODES", MODES)
    return color_config(constant(f"const x = .{{ {text} }};"), HERE)


CONFIGS = """
ROUTES ==> ColorConfig((Route(1, 8),))
.routes = .{ .rx = WEST, .tx = .{ EAST, RAMP } } ==> ColorConfig((Route(2, 5),))
.routes = .{ .rx = [1]direction{ WEST }, .tx = .{ EAST } } ==> ColorConfig((Route(2, 4),))
.routes = .{ .rx = WEST, .tx = .{} } ==> ColorConfig((Route(2, 0),))
ROUTES, .switches = .{ .pos1 = .{ .rx = EAST, .tx = WEST }, .pos2 = .{ .rx = SOUTH }, .pos3 = .{ .tx = .{} } }
  ColorConfig((Route(1, 8), Route(4, 2), Route(16, 2), Route(16, 0)))
.routes = .{ .tx = .{ EAST } } ==> ColorConfig((Route(0, 4),))
.routes = .{ .rx = .{ RAMP } }, .switches = .{ .pos1 = .{ .rx = .{} } } ==> ColorConfig((Route(1, 0), Route(0, 0)))
.teardown = true ==> ColorConfig((Route(0, 0),), teardown=True)
ROUTES, .teardown = true ==> ColorConfig((Route(1, 8),), teardown=True)
ROUTES, .switches = .{ .pos1 = .{ .tx = WEST }, .pos2 = .{ .rx = EAST, .tx = .{ SOUTH, RAMP } }, MODES }
  ColorConfig((Route(1, 8), Route(1, 2), Route(4, 17)), 1, True, "pop_on_advance")
ROUTES, .switches = .{ .pos1 = .{ .tx = WEST }, .pos2 = .{ .rx = EAST }, .pos3 = .{ .tx = SOUTH } }
  ColorConfig((Route(1, 8), Route(1, 2), Route(4, 2), Route(4, 16)))
ROUTES, .switches = .{ .pop_mode = .always_pop } ==> ColorConfig((Route(1, 8),), pop="always_pop")
ROUTES, .switches = .{ .pos1 = .{ .invalid = true } } ==> ColorConfig((Route(1, 8),))
ROUTES, .filter = .{ .kind = .{ .range = true }, .min_idx = 2, .max_idx = 5 }
  ColorConfig((Route(1, 8),), filter=Filter("range", (2, 5)))
ROUTES, .filter = .{ .kind = .counter, .limit1 = 3, .max_counter = 7, .count_control = false }
  ColorConfig((Route(1, 8),), filter=Filter("counter", (0, 3, 7), control=False))
ROUTES, .filter = .{ .kind = .counter, .init_counter = 2, .limit1 = 3, .max_counter = 0, .count_data = true }
  ColorConfig((Route(1, 8),), filter=Filter("counter", (2, 3, 0), control=False))
ROUTES, .filter = .{ .kind = .counter, .limit1 = 3, .max_counter = 0, .count_control = true }
  ColorConfig((Route(1, 8),), filter=Filter("counter", (0, 3, 0)))
.routes = .{ .rx = .{ WEST }, .tx = .{ EAST }, .color_swap_x = true } ==> ColorConfig((Route(2, 4),), swap=1)
ROUTES, .color_swap_x = true, .color_swap_y = true ==> ColorConfig((Route(1, 8),), swap=3)
"""


@pytest.mark.parametrize(("text", "expected"), cases(CONFIGS))
def test_configs(text: str, expected: str) -> None:
    assert _config(text) == eval(expected, {**vars(program)})


REFUSED = r"""
.route = 1
  a color's config has the fields routes, switches, filter, teardown, color_swap_x, color_swap_y, got .route
.routes = .{} ==> a route needs .rx or .tx, where wavelets come from or go
.routes = 5 ==> .routes is a struct, got comptime_int 5
.routes = .{ .rx = .{ 5 }, .tx = .{ EAST } }
  .rx is a direction or several, .{ WEST, RAMP }, got comptime_struct .{ 5 }
.routes = .{ .rx = .{ RAMP, RAMP }, .tx = .{ EAST } } ==> .rx names a direction once, got RAMP twice
ROUTES, .switches = .{ .pos2 = .{ .tx = WEST } } ==> .pos2 follows .pos1, which is not given
ROUTES, .switches = .{ .current_switch_pos = 4 } ==> .current_switch_pos is 0 to 3, got comptime_int 4
ROUTES, .switches = .{ .current_switch_pos = 1 } ==> .current_switch_pos is a position that there is, got 1
ROUTES, .switches = .{ .pop_mode = .never } ==> .pop_mode is one of no_pop, always_pop, pop_on_advance, got .never
ROUTES, .switches = .{ .ring_mode = 1 } ==> .ring_mode is true or false, got comptime_int 1
ROUTES, .filter = .{} ==> .filter needs .kind: one of range, sparse_range, counter
ROUTES, .filter = .{ .kind = .{ .range = true } } ==> a filter of kind range needs .max_idx
ROUTES, .filter = .{ .kind = .range, .max_idx = 99999 } ==> .max_idx is 0 to 65535, got comptime_int 99999
"""


@pytest.mark.parametrize(("text", "message"), cases(REFUSED))
def test_refused(text: str, message: str) -> None:
    with pytest.raises(CslError) as error:
        _config(text)
    assert str(error.value.message).removeprefix("layout.csl:1:1: ") == message
