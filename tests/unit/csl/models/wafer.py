"""A wafer inside this process, for the host's side of programs on the fabric."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cstool.csl.fabric.host import Host, Rectangle
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.language.compile import compile_csl
from cstool.csl.models.gpt_program import GptProgram

Array = np.ndarray[Any, Any]


def compiled(program: GptProgram, folder: Any, arch: str = "wse3") -> FabricProgram:
    for name, text in program.files.items():
        (folder / name).write_text(text)
    return compile_csl(folder / "layout.csl", arch, {})


class Wafer:
    """A simulation, with what the host does to it.

    Attributes:
        cycles: from when a launch reaches the PEs until the last PE is done, of the last launch, by function
    """

    def __init__(self, program: FabricProgram) -> None:
        self._simulation = Simulation(program)
        self._host = Host(self._simulation)
        self._cycles: dict[str, int] = {}

    @property
    def cycles(self) -> Mapping[str, int]:
        return self._cycles

    def put(self, symbol: str, values: Array) -> None:
        height, width, _ = values.shape
        self._host.finish(
            self._host.copy_in(symbol, Rectangle(0, 0, width, height), values.view("<u4"), 32, values.size)
        )

    def get(self, symbol: str, size: tuple[int, int, int]) -> Array:
        height, width, words = size
        command = self._host.copy_out(symbol, Rectangle(0, 0, width, height), words, 32)
        self._host.finish(command)
        assert command.result is not None
        return command.result.view("<f4")

    def call(self, function: str) -> None:
        command = self._host.launch(function, ())
        self._host.finish(command)
        self._cycles[function] = self._simulation.events.now - command.started
