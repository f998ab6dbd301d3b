"""Exchanges that programs under examples/csl share, beside plain lists: for rows of any length, either generation."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.language.compile import compile_csl
from cstool.csl.language.source import CslError
from tests.examples import examples
from tests.unit.csl.language.many_pes import Run

EXAMPLES = Path(__file__).parents[4] / "examples" / "csl"

MARCH_LAYOUT = """
param width: u16;
param reach: u16;
param words: u16;
param rounds: u16;
const march = @import_module("march/routes.csl", .{ .reach = reach });
layout {
  @set_rectangle(width, 1);
  for (@range(u16, width)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{
      .x = x, .reach = reach, .words = words, .rounds = rounds,
      .below = march.listeners(width - 1 - x, width), .above = march.listeners(x, width),
    });
    march.set_route(x, 0, @get_color(0), x, width, WEST, EAST);
    march.set_route(x, 0, @get_color(1), width - 1 - x, width, EAST, WEST);
  }
  @export_name("share", fn()void);
}
"""
MARCH_PE = """
param x: u16;
param reach: u16;
param below: u16;
param above: u16;
param words: u16;
param rounds: u16;
const next_id = @get_local_task_id(8);
const march = @import_module("march/exchange.csl", .{
  .reach = reach, .below = below, .above = above, .higher = @get_color(0), .lower = @get_color(1), .first = 2,
  .done_id = next_id,
});
const size = words * (1 + below + above);
const whole = rounds * size;
var heard = @zeros([size]f32);
var all = @zeros([whole]f32);
var round: u16 = 0;

fn share() void {
  for (@range(u16, words)) |k| {
    heard[k] = @as(f32, 100 * x + 10 * round + k);
  }
  march.exchange(&heard, words);
}

task next() void {
  @block(next_id);
  for (@range(u16, size)) |k| {
    all[round * size + k] = heard[k];
  }
  round += 1;
  if (round < rounds) share();
}

comptime {
  @bind_local_task(next, next_id);
  @export_symbol(share);
}
"""

WEIGH_LAYOUT = """
param width: u16;
param reach: u16;
param size: u16;
param rounds: u16;
const march = @import_module("march/routes.csl", .{ .reach = reach, .hears_itself = true });
layout {
  @set_rectangle(width, 1);
  for (@range(u16, width)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{
      .x = x, .reach = reach, .size = size, .rounds = rounds,
      .turn = march.turn_of(width - 1 - x), .heard = march.heard(width - 1 - x),
    });
    march.set_route(x, 0, @get_color(1), width - 1 - x, width, EAST, WEST);
  }
  @export_name("share", fn()void);
}
"""
WEIGH_PE = """
param x: u16;
param reach: u16;
param size: u16;
param rounds: u16;
param turn: u16;
param heard: u16;
const next_id = @get_local_task_id(8);
const count = heard * size;
var products = @zeros([count]f32);
const whole = rounds * heard * size;
var all = @zeros([whole]f32);
var own = @zeros([size]f32);
const own_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |k|{size} -> own[k] });
var round: u16 = 0;

fn weights() [reach + 1]f32 {
  var found = @zeros([reach + 1]f32);
  for (@range(u16, reach + 1)) |k| {
    found[k] = @as(f32, k * k + 1);
  }
  return found;
}
const way = @import_module("march/weigh.csl", .{
  .reach = reach, .size = size, .weights = weights(), .turn = turn, .heard = heard, .spoken = @get_color(1),
  .input = @get_input_queue(2), .output = @get_output_queue(2), .products = &products, .ended_id = next_id,
});

fn share() void {
  for (@range(u16, size)) |k| {
    own[k] = @as(f32, 100 * x + 10 * round + k);
  }
  way.receive();
  way.send(own_dsd);
}

task next() void {
  for (@range(u16, count)) |k| {
    all[round * count + k] = products[k];
  }
  round += 1;
  if (round < rounds) share();
}

comptime {
  @bind_local_task(next, next_id);
  @export_symbol(share);
}
"""

ALL_LAYOUT = """
param width: u16;
param part: u16;
param rounds: u16;
const halo = @import_module("halo/routes.csl", .{ .width = width, .height = 1 });
layout {
  @set_rectangle(width, 1);
  for (@range(u16, width)) |x| {
    @set_tile_code(x, 0, "pe.csl", .{
      .x = x, .width = width, .part = part, .rounds = rounds,
      .colors = halo.colors_of(x, 0), .has = halo.neighbours_of(x, 0),
    });
    halo.set_routes(x, 0);
  }
  @export_name("share", fn()void);
}
"""
ALL_PE = """
param x: u16;
param width: u16;
param part: u16;
param rounds: u16;
param colors;
param has;
const row = @import_module("fft/all_to_all.csl", .{
  .count = width, .has_lower = has.west, .has_higher = has.east, .part = part, .first = 2,
  .colors = .{
    .to_higher = colors.to_east, .from_lower = colors.from_west,
    .to_lower = colors.to_west, .from_higher = colors.from_east,
  },
  .extents = .{ part, 1 }, .strides = .{ 1, 1 }, .pitch = part,
});
const size = width * part;
const whole = rounds * size;
var parts = @zeros([size]f32);
var all = @zeros([whole]f32);

fn share() void {
  for (@range(u16, rounds)) |round| {
    for (@range(u16, size)) |k| {
      parts[k] = @as(f32, x) * 10000.0 + @as(f32, 1000 * round + k);
    }
    row.exchange(x, &parts, &all[round * size]);
  }
}

comptime {
  @export_symbol(share);
}
"""


def all_to_all(arch: str, width: int, part: int, rounds: int) -> list[list[float]]:
    """Parts that came to each PE, by round and by sender."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for shared in ("fft", "halo"):
            shutil.copytree(EXAMPLES / shared, folder / shared)
        files = {"layout.csl": ALL_LAYOUT, "pe.csl": ALL_PE}
        run = Run(folder, files, arch, width=width, part=part, rounds=rounds)
        run.host.launch("share", ())
        return run.row("all")


@pytest.mark.takes("compiles and simulates rows of PEs")
@examples(30)
@given(
    arch=st.sampled_from(["wse2", "wse3"]), width=st.integers(1, 12), part=st.integers(1, 5), rounds=st.integers(1, 3)
)
def test_in_an_exchange_of_all_with_all_each_pe_gets_its_part_of_every_other(arch, width, part, rounds):
    found = np.reshape(all_to_all(arch, width, part, rounds), (width, rounds, width, part))
    me, number, sender, k = np.ogrid[:width, :rounds, :width, :part]
    np.testing.assert_array_equal(found, 10000 * sender + 1000 * number + part * me + k)


def shared(layout: str, pe: str, arch: str, **params: int) -> list[list[float]]:
    """Run a row of PEs that share by `march`; return the values of each."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(EXAMPLES / "march", folder / "march")
        run = Run(folder, {"layout.csl": layout, "pe.csl": pe}, arch, **params)
        run.host.launch("share", ())
        return run.row("all")


def marched(arch: str, width: int, reach: int, words: int, rounds: int) -> list[list[float]]:
    """What each PE has at the end: for each round its own values, then those that came, in their order."""
    return shared(MARCH_LAYOUT, MARCH_PE, arch, width=width, reach=reach, words=words, rounds=rounds)


def in_order(senders: range, me: int, reach: int) -> list[int]:
    """PEs by their turn; `me` counts along the direction, as they do."""
    return sorted((each for each in senders if each != me), key=lambda each: (each % (reach + 1), each))


@pytest.mark.takes("compiles and simulates rows of PEs")
@examples(40)
@given(
    arch=st.sampled_from(["wse2", "wse3"]), width=st.integers(1, 17), reach=st.integers(1, 7),
    words=st.integers(1, 4), rounds=st.integers(1, 3),
)  # fmt: skip
def test_a_multicast_that_marches_brings_every_neighbours_values_in_the_order_of_turns(
    arch, width, reach, words, rounds
):
    found = marched(arch, width, reach, words, rounds)
    for me, values in enumerate(found):
        last = width - 1
        below = in_order(range(max(me - reach, 0), me), me, reach)
        above = [last - each for each in in_order(range(max(last - me - reach, 0), last - me), last - me, reach)]
        expected = [
            100 * each + 10 * number + k
            for number in range(rounds)
            for each in [me, *below, *above]
            for k in range(words)
        ]
        assert values == expected


def weighed(arch: str, width: int, reach: int, size: int, rounds: int) -> list[list[float]]:
    """What came to each PE from the east, times 1 + the square of its distance, sender by sender."""
    return shared(WEIGH_LAYOUT, WEIGH_PE, arch, width=width, reach=reach, size=size, rounds=rounds)


@pytest.mark.takes("compiles and simulates rows of PEs")
@examples(30)
@given(
    arch=st.sampled_from(["wse2", "wse3"]), width=st.integers(1, 17), reach=st.integers(1, 7),
    size=st.integers(1, 4), rounds=st.integers(1, 3),
)  # fmt: skip
def test_vectors_are_weighed_by_the_distance_of_their_senders_and_a_pe_hears_its_own(arch, width, reach, size, rounds):
    last = width - 1
    for me, values in enumerate(weighed(arch, width, reach, size, rounds)):
        turns = sorted(range(me, min(me + reach, last) + 1), key=lambda each: ((last - each) % (reach + 1), -each))
        assert values == [
            (100 * each + 10 * number + k) * ((each - me) ** 2 + 1)
            for number in range(rounds)
            for each in turns
            for k in range(size)
        ]


def test_a_command_has_no_room_for_more_than_eight_routers():
    with pytest.raises(CslError) as info:
        marched("wse2", 3, 8, 1, 1)
    assert "a command for each router from sender to tail" in str(info.value)


@pytest.mark.parametrize(
    ("program", "params", "said"),
    [
        ("fft_2d", {"n": 12, "width": 4}, "@comptime_assert failed: a pencil has a power of two elements"),
        ("fft_2d", {"n": 16, "width": 5}, "@comptime_assert failed: PEs get equal blocks of each axis"),
        ("fft_3d", {"n": 8, "width": 4, "height": 3}, "@comptime_assert failed: PEs get equal blocks of each axis"),
    ],
)
def test_a_program_says_which_sizes_it_takes(program, params, said):
    with pytest.raises(CslError) as info:
        compile_csl(EXAMPLES / program / "layout.csl", arch="wse2", params=params)
    assert str(info.value).splitlines()[0].endswith(f": {said}")
