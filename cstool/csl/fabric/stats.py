"""Counts of a simulation: `sim_stats.json`, written at the end of a run and read again.

Of PEs: cycles of the main thread and the datapath, tasks, elements, wavelets; of links: wavelets that each router sent
out by each port. All of it is simulated: counted in the simulator, measured on no wafer.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import PORTS
from cstool.csl.fabric.arrays import DAMAGE, read_file
from cstool.csl.fabric.time_model import TIME_MODELS
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.csl.fabric.simulation import Simulation

FORMAT = 2
Grid = NDArray[np.int64]


class PEStats(NamedTuple):
    """Counts of one PE.

    Args:
        busy: cycles in which its main thread had a task
        tasks: tasks begun
        elements: elements of vector operations
        received: wavelets that came down its ramp
        sent: wavelets that it put on its ramp
    """

    busy: int
    tasks: int
    elements: int
    received: int
    sent: int


PER_PE = PEStats._fields


class Stats(NamedTuple):
    """Counts of a simulation so far.

    Args:
        cycles: cycles
        events: events, the measure of the simulator's own work
        pes: by index
        hops: wavelets by (PE index, output port, color)
    """

    cycles: int
    events: int
    pes: tuple[PEStats, ...]
    hops: dict[tuple[int, int, int], int]


@dataclass(frozen=True)
class FabricStats:
    """The numbers of one run, up to its last cycle.

    Args:
        arch: of the wafer
        time: name of the model of time
        cycles: of the whole run
        pes: [height, width] by name, as of `PEStats`
        links: [height, width] by port: wavelets that left the router of each PE by it; RAMP is to the PE itself
    """

    arch: str
    time: str
    cycles: int
    pes: dict[str, Grid]
    links: dict[str, Grid]

    @property
    def time_text(self) -> str:
        """The model of time in words."""
        return TIME_MODELS[self.time].text

    @property
    def height(self) -> int:
        """Rows of the rectangle."""
        return int(self.pes["busy"].shape[0])

    @property
    def width(self) -> int:
        """Columns of the rectangle."""
        return int(self.pes["busy"].shape[1])

    @property
    def busy_share(self) -> NDArray[np.float64]:
        """[height, width] share of the run's cycles in which a PE was busy."""
        share: NDArray[np.float64] = self.pes["busy"] / max(1, self.cycles)
        return share

    def hottest(self) -> tuple[int, int, str, int]:
        """Column and row of the router that sent most by one port to a neighbour, the port, and the wavelets."""
        port = max(PORTS[1:], key=lambda name: int(self.links[name].max()))
        y, x = np.unravel_index(int(self.links[port].argmax()), self.links[port].shape)
        return int(x), int(y), port, int(self.links[port].max())


def stats_document(simulation: "Simulation") -> dict[str, Any]:
    """The contents of `sim_stats.json`."""
    program, stats = simulation.program, simulation.stats()
    size = program.width * program.height
    links = {port: [0] * size for port in PORTS}
    for (pe, port, _), wavelets in stats.hops.items():
        links[PORTS[port]][pe] += wavelets
    return {
        "format": FORMAT,
        "about": "simulated: counted in the simulator, measured on no wafer",
        "arch": program.arch,
        "time": simulation.time_model.name,
        "cycles": stats.cycles,
        "width": program.width,
        "height": program.height,
        "pes": {name: [getattr(pe, name) for pe in stats.pes] for name in PER_PE},
        "links": links,
    }


def read_stats(path: Path) -> FabricStats:
    """Read a `sim_stats.json`.

    Raises:
        CstoolError: it is missing, or not in this format
    """
    try:
        found = json.loads(read_file(path))
        if found["format"] != FORMAT:
            raise ValueError
        shape = int(found["height"]), int(found["width"])
        if min(shape) < 1:
            raise ValueError
        pes = {name: np.array(found["pes"][name], np.int64).reshape(shape) for name in PER_PE}
        links = {port: np.array(found["links"][port], np.int64).reshape(shape) for port in PORTS}
        return FabricStats(str(found["arch"]), TIME_MODELS[found["time"]].name, int(found["cycles"]), pes, links)
    except OSError as error:
        hint = "a run writes it at its end: `cstool fabric run DIR`"
        raise CstoolError(f"{path}: cannot be read, got: {error.strerror}", hint) from error
    except DAMAGE as error:
        raise CstoolError(f"{path}: must be a sim_stats.json as this version writes it, it is not") from error
