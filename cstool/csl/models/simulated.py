"""A program on the fabric inside this process: the copies and launches of `host.Fabric`, with the cycles of each."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cstool.csl.fabric.host import Command, Host, Rectangle
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.language.compile import compile_csl
from cstool.csl.models.emit import write_folder
from cstool.csl.models.host import Fabric
from cstool.csl.models.network import Network
from cstool.csl.sdk.engine import open_simulation

Array = np.ndarray[Any, Any]


def compile_network(network: Network) -> FabricProgram:
    """Return the compiled program of a network.

    Raises:
        CompileError: a layer does not fit
    """
    with TemporaryDirectory(prefix="cstool_csl_") as folder:
        write_folder(network, Path(folder))
        return compile_csl(Path(folder) / "layout.csl", "wse3")


@dataclass
class SimulatedFabric(Fabric):
    """A compiled program that runs; see `host.Fabric`.

    Args:
        program: from `compile_csl`

    Attributes:
        cycles: of each call so far, simulated: function and cycles
    """

    program: FabricProgram
    cycles: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.simulation = open_simulation(self.program)
        self._host = Host(self.simulation)

    def put(self, symbol: str, values: Array, at: tuple[int, int] = (0, 0)) -> None:
        """See `host.Fabric.put`."""
        height, width, _ = values.shape
        words = np.ascontiguousarray(values).view(np.uint32)
        self._do(self._host.copy_in(symbol, Rectangle(*at, width, height), words, 32, words.size))

    def get(self, symbol: str, shape: tuple[int, int, int], dtype: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """See `host.Fabric.get`."""
        height, width, count = shape
        found = self._do(self._host.copy_out(symbol, Rectangle(*at, width, height), count, 32)).result
        assert found is not None
        return found.astype(np.uint32, copy=False).view(dtype)

    def call(self, function: str, *arguments: int) -> None:
        """See `host.Fabric.call`."""
        self._host.settle()
        began = self.simulation.events.now
        self._do(self._host.launch(function, arguments))
        self.cycles.append((function, self.simulation.events.now - began))

    def _do(self, command: Command) -> Command:
        self._host.finish(command)
        if not command.done:
            self._host.stop()  # raises the report of what stands still
        return command
