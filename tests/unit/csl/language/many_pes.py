"""Programs of one PE or several, compiled and simulated in this process, with a host that launches."""

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from cstool.csl.fabric.dsd import Mem1d
from cstool.csl.fabric.host import Host
from cstool.csl.fabric.operations import BYTES
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.language.compile import compile_csl

PORTS = """
fn fabout(comptime c: color, comptime q: output_queue, comptime extent: u16, comptime control: bool) fabout_dsd {
  return @get_dsd(fabout_dsd, if (@is_arch("wse3")) .{
    .extent = extent, .output_queue = q, .control = control,
  } else .{ .extent = extent, .output_queue = q, .control = control, .fabric_color = c });
}

fn fabin(comptime c: color, comptime q: input_queue, comptime extent: u16) fabin_dsd {
  return @get_dsd(fabin_dsd, if (@is_arch("wse3")) .{ .extent = extent, .input_queue = q } else .{
    .extent = extent, .input_queue = q, .fabric_color = c,
  });
}

fn data_task(comptime c: color, comptime q: input_queue) data_task_id {
  return if (@is_arch("wse3")) @get_data_task_id(q) else @get_data_task_id(c);
}
"""
"""`ports.csl`, a module that every program may import: DSDs and ids of data tasks for both generations."""
_ARRAY = re.compile(r"^var (\w+) = (?:@zeros\()?\[(\w+)\](\w+)", re.MULTILINE)


def arrays(text: str) -> list[tuple[str, str, str]]:
    """Name, length and type of each array of a program (`var x = @zeros([4]f32);`) that it does not export itself."""
    return [found for found in _ARRAY.findall(text) if f'"{found[0]}"' not in text]


def exporting(files: Mapping[str, str]) -> dict[str, str]:
    """These files, among them `layout.csl`, and `ports.csl`; programs export their arrays."""
    names, found = {}, {"ports.csl": PORTS}
    for file, text in files.items():
        names |= {name: letter for name, _, letter in arrays(text)}
        exports = "".join(
            f'var {name}_ptr: [*]{letter} = &{name}; comptime {{ @export_symbol({name}_ptr, "{name}"); }}\n'
            for name, _, letter in arrays(text)
        )
        found[file] = f"{text}\n{exports}"
    exports = "".join(f'  @export_name("{name}", [*]{letter}, true);\n' for name, letter in names.items())
    return {**found, "layout.csl": files["layout.csl"].rstrip().removesuffix("}") + exports + "}\n"}


class Run:
    """Files by name, compiled; arrays are exported. `params` are the layout's.

    Attributes:
        said: lines that the programs printed
    """

    def __init__(self, folder: Path, files: Mapping[str, str], arch: str = "wse3", **params: int) -> None:
        for file, text in exporting(files).items():
            (folder / file).write_text(text)
        self.program = compile_csl(folder / "layout.csl", arch=arch, params=params)
        self.said: list[str] = []

        def said(_time: int, _pe: int, line: str) -> None:
            self.said.append(line)

        self.simulation = Simulation(self.program, max_cycles=2_000_000, on_say=said, on_print=said)
        self.host = Host(self.simulation)

    def array(self, name: str, x: int = 0, y: int = 0) -> np.ndarray:
        """An exported array of a PE, to be read and written."""
        pe = self.simulation.pes[y * self.program.width + x]
        symbol = pe.program.symbols[name]
        size = BYTES[symbol.letter]
        return pe.memory.array(Mem1d(symbol.address, symbol.count, size, size), symbol.count, symbol.letter)

    def row(self, name: str) -> list[list[int | float]]:
        """What an array holds on each PE of the first row once nothing happens any more."""
        self.simulation.run_until()
        return [self.array(name, x).tolist() for x in range(self.program.width)]

    def launch(self, name: str, *arguments: float) -> None:
        """Start a function on all PEs, and wait for all of them."""
        self.host.finish(self.host.launch(name, arguments))


class OnePE(Run):
    """One PE, run to its end: what is top-level, a line of ---, and what runs once.

    An array `x` has a DSD of all of it, `x_dsd`; `given` are what arrays hold first.
    """

    def __init__(self, folder: Path, arch: str, program: str, **given: np.ndarray) -> None:
        text, body = program.split("\n---\n")
        dsds = "".join(
            f"const {name}_dsd = @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{{count}}} -> {name}[i] }});\n"
            for name, count, _ in arrays(text)
        )
        start = "@bind_local_task(start, @get_local_task_id(20)); @activate(@get_local_task_id(20));"
        code = f"{text}\n\ntask start() void {{\n{textwrap.indent(body, '  ')}\n}}\ncomptime {{ {start} }}\n{dsds}"
        layout = 'layout { @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", .{}); }'
        super().__init__(folder, {"layout.csl": layout, "pe.csl": code}, arch)
        for name, values in given.items():
            self.array(name)[:] = values
        self.simulation.run_until()

    def __getitem__(self, name: str) -> np.ndarray:
        """An array as it is at the end."""
        return self.array(name)


One = Callable[..., OnePE]
