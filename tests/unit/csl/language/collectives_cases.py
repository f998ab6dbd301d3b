"""Programs that run collective operations one after another on a row or a column, and what must come of them."""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.language.compile import compile_csl

LAYOUT = """
param size: u16;
const c2d = @import_module("<collectives_2d/params>");

layout {{
  @set_rectangle({width}, {height});
  for (@range(u16, {width})) |x| {{
    for (@range(u16, {height})) |y| {{
      const params = c2d.get_params(x, y, .{{
        .{axis}_colors = .{{ @get_color(0), @get_color(1) }},
        .{axis}_entrypoints = .{{ @get_local_task_id(10), @get_local_task_id(11) }},
      }});
      @set_tile_code(x, y, "pe.csl", .{{ .c2d_params = params.{axis} }});
    }}
  }}
{exports}
}}
"""

PE = """
param c2d_params: comptime_struct;
const mpi = @import_module("<collectives_2d/pe>", .{{ .dim_params = c2d_params }});
const next_id = @get_local_task_id(12);
const pauses = [{pause_count}]u16{{ {pauses} }};
{buffers}
var at: u16 = 0;
var ended: u32 = 0;
var ended_ptr: [*]u32 = &ended;

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
    else => {{ ended = 1; }},
  }}
}}

comptime {{
  @bind_local_task(next, next_id);
  @activate(next_id);
  @export_symbol(ended_ptr, "ended");
{symbols}
}}
"""


@dataclass(frozen=True)
class Call:
    """A collective operation: "broadcast", "scatter", "gather" or "reduce_fadds"."""

    kind: str
    root: int
    count: int


def program(
    folder: Path,
    calls: list[Call],
    size: int,
    horizontal: bool = True,
    arch: str = "wse2",
    pauses: tuple[int, ...] = (0,),
) -> FabricProgram:
    """All `calls` in their order, each with a buffer a to send and a buffer b to receive, `size * count` long."""
    buffers, lines, symbols, exports = [], [], [], ['  @export_name("ended", [*]u32, true);']
    for k, call in enumerate(calls):
        letter = "f32" if call.kind == "reduce_fadds" else "u32"
        for name in (f"a{k}", f"b{k}"):
            buffers.append(f"var {name} = @zeros([{size * max(call.count, 1)}]{letter});")
            buffers.append(f"var {name}_ptr: [*]{letter} = &{name};")
            symbols.append(f'  @export_symbol({name}_ptr, "{name}");')
            exports.append(f'  @export_name("{name}", [*]{letter}, true);')
        send = f"a{k}_ptr" if call.kind == "broadcast" else f"a{k}_ptr, b{k}_ptr"
        lines.append(f"    {k} => mpi.{call.kind}({call.root}, {send}, {call.count}, next_id),")
    width, height = (size, 1) if horizontal else (1, size)
    (folder / "pe.csl").write_text(
        PE.format(
            pause_count=len(pauses),
            pauses=", ".join(map(str, pauses)),
            buffers="\n".join(buffers),
            calls="\n".join(lines),
            symbols="\n".join(symbols),
        )
    )
    layout = folder / "layout.csl"
    axis = "x" if horizontal else "y"
    layout.write_text(LAYOUT.format(width=width, height=height, axis=axis, exports="\n".join(exports)))
    return compile_csl(layout, arch=arch, params={"size": str(size)})


class Run:
    """A simulation of `program`, with random numbers in all a's.

    Attributes:
        cycles: until nothing happened any more
    """

    def __init__(self, fabric: FabricProgram, calls: list[Call], size: int, seed: int) -> None:
        random = Random(seed)
        self._fabric = fabric
        self._simulation = Simulation(fabric, max_cycles=1_000_000)
        self._size = size
        self._given = []
        for k, call in enumerate(calls):
            shape = (size, size * call.count)
            numbers = np.array([random.randint(-99, 99) for _ in range(shape[0] * shape[1])], np.float32).reshape(shape)
            self._given.append(numbers)
            for pe in range(size):
                self._words(pe, f"a{k}")[: shape[1]] = numbers[pe].view(np.uint32)
        self._simulation.run_until()
        self.cycles = self._simulation.events.now

    def _words(self, pe: int, name: str) -> np.ndarray:
        """SRAM from the variable `name` on, as words."""
        element = self._simulation.pes[pe]
        address = self._fabric.programs[0].symbols[name].address
        return np.asarray(element.u32)[address // 4 :]

    def check(self, calls: list[Call]) -> None:
        """Every operation ended on every PE, and brought what it must. Sums are of small integers: exact."""
        size = self._size
        assert [int(self._words(pe, "ended")[0]) for pe in range(size)] == [1] * size
        for k, (call, given) in enumerate(zip(calls, self._given, strict=True)):
            count, root = call.count, call.root
            wanted: dict[int, np.ndarray]
            name = f"b{k}"
            if call.kind == "broadcast":
                name, wanted = f"a{k}", dict.fromkeys(range(size), given[root, :count])
            elif call.kind == "scatter":
                wanted = {pe: given[root, pe * count : (pe + 1) * count] for pe in range(size)}
            elif call.kind == "gather":
                wanted = {root: given[:, :count].ravel()}
            else:
                wanted = {root: given[:, :count].sum(0, dtype=np.float32)}
            for pe, numbers in wanted.items():
                found = self._words(pe, name)[: len(numbers)].view(np.float32)
                assert found.tolist() == numbers.tolist(), (k, call, pe)
