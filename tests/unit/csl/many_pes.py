"""Programs of several PEs: their files' texts; compiled, run, and read."""

from pathlib import Path

import numpy as np

from cstool.csl.compile import compile_csl
from cstool.fabric.simulation import Simulation

_TYPES = {"w": np.uint32, "i": np.int32, "f": np.float32, "H": np.uint16, "h": np.int16, "e": np.float16}

OUTPUT = """
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
    """Files by name, among them `layout.csl`, compiled and run to the end.

    Attributes:
        said: (PE, line) that the programs printed
    """

    def __init__(
        self,
        folder: Path,
        files: dict[str, str],
        arch: str,
        params: dict[str, int] | None = None,
        colors: dict[str, int] | None = None,
    ) -> None:
        for name, text in {"ports.csl": OUTPUT, **files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.program = compile_csl(folder / "layout.csl", arch=arch, params=params or {}, colors=colors or {})
        self.said: list[tuple[int, str]] = []
        self.simulation = Simulation(
            self.program, max_cycles=200_000, on_say=lambda _time, pe, line: self.said.append((pe, line))
        )
        self.simulation.run_until()

    def at(self, x: int, y: int, name: str) -> list[int | float]:
        """What an exported array of a PE holds at the end."""
        pe = self.simulation.pes[y * self.program.width + x]
        symbol = pe.program.symbols[name]
        kind = np.dtype(_TYPES[symbol.letter])
        found = np.asarray(pe.u8)[symbol.address : symbol.address + symbol.count * kind.itemsize].view(kind)
        return list(found.tolist())

    def row(self, name: str, y: int = 0) -> list[list[int | float]]:
        """Likewise of all PEs of a row."""
        return [self.at(x, y, name) for x in range(self.program.width)]
