"""A program of one PE: its text, its variables' names; run, and read."""

import re
from pathlib import Path

import numpy as np

from cstool.csl.fabric.simulation import Simulation
from cstool.csl.language.compile import compile_csl

LAYOUT = """
layout {{
  @set_rectangle(1, 1);
  @set_tile_code(0, 0, "pe.csl", .{{}});
{exports}
}}
"""

PE = """
{text}

task start() void {{
{body}
}}

comptime {{
  @bind_local_task(start, @get_local_task_id(20));
  @activate(@get_local_task_id(20));
{symbols}
}}
"""

TYPES = {"f32": np.float32, "f16": np.float16, "u32": np.uint32, "i32": np.int32, "u16": np.uint16, "i16": np.int16}
_ARRAY = re.compile(r"^var (\w+) = @zeros\(\[(\d+)\](\w+)\);", re.MULTILINE)


class OnePE:
    """`text` is top-level, `body` runs once. Arrays (`var x = @zeros([4]f32);`) are exported.

    Attributes:
        said: lines that the program printed
    """

    def __init__(self, folder: Path, text: str, body: str, arch: str = "wse3", **given: np.ndarray) -> None:
        arrays = _ARRAY.findall(text)
        pointers = "\n".join(f"var {name}_ptr: [*]{letter} = &{name};" for name, _, letter in arrays)
        symbols = "\n".join(f'  @export_symbol({name}_ptr, "{name}");' for name, _, _ in arrays)
        exports = "\n".join(f'  @export_name("{name}", [*]{letter}, true);' for name, _, letter in arrays)
        (folder / "pe.csl").write_text(PE.format(text=f"{text}\n{pointers}", body=body, symbols=symbols))
        layout = folder / "layout.csl"
        layout.write_text(LAYOUT.format(exports=exports))
        self.program = compile_csl(layout, arch=arch)
        self.said: list[str] = []
        simulation = Simulation(
            self.program, max_cycles=1_000_000, on_say=lambda _time, _pe, line: self.said.append(line)
        )
        bytes_ = simulation.pes[0].u8
        views = {}
        for name, count, letter in arrays:
            address = self.program.programs[0].symbols[name].address
            kind = np.dtype(TYPES[letter])
            views[name] = np.asarray(bytes_)[address : address + int(count) * kind.itemsize].view(kind)
        for name, values in given.items():
            views[name][:] = values
        simulation.run_until()
        self._views = views

    def __getitem__(self, name: str) -> np.ndarray:
        """An array as it is at the end."""
        return self._views[name].copy()
