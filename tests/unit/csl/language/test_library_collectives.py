"""<collectives_2d>: every operation, root and extent, one after another, on PEs that are not ready together."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.unit.csl.language.many_pes import Run

KINDS = ("broadcast", "scatter", "gather", "reduce_fadds")
LAYOUT = """
const c2d = @import_module("<collectives_2d/params>");
layout {
  @set_rectangle(WIDTH, HEIGHT);
  for (@range(u16, WIDTH)) |x| {
    for (@range(u16, HEIGHT)) |y| {
      const params = c2d.get_params(x, y, .{
        .AXIS_colors = .{ @get_color(0), @get_color(1) },
        .AXIS_entrypoints = .{ @get_local_task_id(10), @get_local_task_id(11) },
      });
      @set_tile_code(x, y, "pe.csl", .{ .c2d_params = params.AXIS });
    }
  }
}
"""
PE = """
param c2d_params: comptime_struct;
const mpi = @import_module("<collectives_2d/pe>", .{{ .dim_params = c2d_params }});
const next_id = @get_local_task_id(12);
const pauses = [{pause_count}]u16{{ {pauses} }};
{buffers}
var at: u16 = 0;
var ended = @zeros([1]u32);

fn pause(count: u16) void {{
  var i: u16 = 0;
  while (i < count) : (i += 1) {{}}
}}

task next() void {{
  if (at == 0) mpi.init();
  pause(pauses[(mpi.pe_id * 7 + at * 3) % {pause_count}]);
  at += 1;
  switch (at - 1) {{
{calls}
    else => {{ ended[0] = 1; }},
  }}
}}

comptime {{
  @bind_local_task(next, next_id);
  @activate(next_id);
}}
"""


@dataclass(frozen=True)
class Call:
    """A collective operation: "broadcast", "scatter", "gather" or "reduce_fadds"."""

    kind: str
    root: int
    count: int


def cycles(
    folder: Path,
    calls: list[Call],
    size: int,
    horizontal: bool = True,
    arch: str = "wse2",
    pauses: tuple[int, ...] = (0,),
) -> int:
    """The cycles of all `calls` in their order; whether each brought what it must is checked.

    Each has a buffer a to send, of random whole numbers, and a buffer b to receive, `size * count` long.
    """
    buffers, lines = [], []
    for k, call in enumerate(calls):
        letter = "f32" if call.kind == "reduce_fadds" else "u32"
        buffers += [f"var {name} = @zeros([{size * max(call.count, 1)}]{letter});" for name in (f"a{k}", f"b{k}")]
        send = f"a{k}_ptr" if call.kind == "broadcast" else f"a{k}_ptr, b{k}_ptr"
        lines.append(f"    {k} => mpi.{call.kind}({call.root}, {send}, {call.count}, next_id),")
    width, height = (size, 1) if horizontal else (1, size)
    layout = LAYOUT.replace("WIDTH", str(width)).replace("HEIGHT", str(height))
    pe = PE.format(
        pause_count=len(pauses), pauses=", ".join(map(str, pauses)), buffers="\n".join(buffers), calls="\n".join(lines)
    )
    run = Run(folder, {"layout.csl": layout.replace("AXIS", "x" if horizontal else "y"), "pe.csl": pe}, arch)

    def words(name: str, pe: int) -> np.ndarray:
        return run.array(name, *((pe, 0) if horizontal else (0, pe))).view(np.uint32)

    random = np.random.default_rng(size)
    given = [random.integers(-99, 99, (size, size * call.count)).astype(np.float32) for call in calls]
    for k, numbers in enumerate(given):
        for pe in range(size):
            words(f"a{k}", pe)[: numbers.shape[1]] = numbers[pe].view(np.uint32)
    run.simulation.run_until()
    assert [int(words("ended", pe)[0]) for pe in range(size)] == [1] * size
    for k, (call, sent) in enumerate(zip(calls, given, strict=True)):
        count, root = call.count, call.root
        wanted: dict[int, np.ndarray]
        if call.kind == "broadcast":
            wanted = dict.fromkeys(range(size), sent[root, :count])
        elif call.kind == "scatter":
            wanted = {pe: sent[root, pe * count : (pe + 1) * count] for pe in range(size)}
        elif call.kind == "gather":
            wanted = {root: sent[:, :count].ravel()}
        else:  # sums of small whole numbers are exact
            wanted = {root: sent[:, :count].sum(0, dtype=np.float32)}
        name = f"a{k}" if call.kind == "broadcast" else f"b{k}"
        for pe, numbers in wanted.items():
            assert words(name, pe)[: len(numbers)].view(np.float32).tolist() == numbers.tolist(), (k, call, pe)
    return run.simulation.events.now


@pytest.mark.parametrize("horizontal", [True, False])
@pytest.mark.parametrize(("size", "archs"), [(1, "wse3 wse2"), (2, "wse2 wse3"), (5, "wse3 wse2")])
def test_every_root(tmp_path: Path, size: int, horizontal: bool, archs: str) -> None:
    """On a column of the first generation, on a row of the other one."""
    calls = [Call(kind, root, 3) for kind in KINDS for root in range(size)]
    cycles(tmp_path, calls, size, horizontal, archs.split()[horizontal])


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_with_pauses(tmp_path: Path, seed: int) -> None:
    """What keeps operations apart: roots, colors and directions change while some PEs are far behind others."""
    random = Random(seed)
    size = random.choice([2, 3, 4, 6, 7])
    calls = [Call(random.choice(KINDS), random.randrange(size), random.choice([0, 1, 1, 2, 5, 13])) for _ in range(12)]
    pauses = tuple(random.choice([0, 0, 2, 20, 200]) for _ in range(5))
    cycles(tmp_path, calls, size, bool(seed % 2), ("wse2", "wse3")[seed % 3 == 0], pauses)


@pytest.mark.parametrize("kind", ["broadcast", "reduce_fadds"])
def test_cycles(tmp_path: Path, kind: str) -> None:
    """Pipelined: a cycle an element, 6 cycles a hop in a chain of sums; in a broadcast, hops hide behind the rest."""
    short, wide, long = (cycles(tmp_path, [Call(kind, 0, count)], size) for size, count in ((4, 1), (12, 1), (4, 61)))
    assert wide - short == 6 * 8 if kind == "reduce_fadds" else wide - short <= 8
    assert 60 <= long - short < 80
