"""Programs of several PEs, compiled and simulated in this process, with a host that launches."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cstool.csl.fabric.host import Host
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.language.compile import compile_csl

_TYPES = {"w": np.uint32, "i": np.int32, "f": np.float32, "H": np.uint16, "h": np.int16, "e": np.float16}
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


class Run:
    """Files by name, among them `layout.csl`, compiled; `params` are the layout's.

    Attributes:
        said: lines that the programs printed
    """

    def __init__(self, folder: Path, files: Mapping[str, str], arch: str, **params: int) -> None:
        for name, text in {"ports.csl": PORTS, **files}.items():
            (folder / name).write_text(text)
        self.program = compile_csl(folder / "layout.csl", arch=arch, params=params)
        self.said: list[str] = []
        self.simulation = Simulation(
            self.program, max_cycles=2_000_000, on_say=lambda _time, _pe, line: self.said.append(line)
        )
        self.host = Host(self.simulation)

    def at(self, x: int, y: int, name: str) -> list[int | float]:
        """What an exported array of a PE holds once nothing happens any more."""
        self.simulation.run_until()
        pe = self.simulation.pes[y * self.program.width + x]
        symbol = pe.program.symbols[name]
        kind = np.dtype(_TYPES[symbol.letter])
        found = np.asarray(pe.u8)[symbol.address : symbol.address + symbol.count * kind.itemsize].view(kind)
        return list(found.tolist())

    def row(self, name: str, y: int = 0) -> list[list[int | float]]:
        """Likewise of all PEs of a row."""
        return [self.at(x, y, name) for x in range(self.program.width)]

    def launch(self, name: str, *arguments: float) -> None:
        """Start a function on all PEs, and wait for all of them."""
        self.host.finish(self.host.launch(name, arguments))
