"""Small fabrics by hand, and what stands still on them."""

import numpy as np

from cstool.csl.fabric.arch import EAST, NORTH, RAMP, SOUTH, WEST
from cstool.csl.fabric.program import ColorConfig, FabricProgram, PEProgram, Route, Task
from cstool.csl.fabric.waiting import MAIN, BufferWait, ThreadWait
from cstool.csl.fabric.wavelet import Wavelet

PORTS = {"R": RAMP, "W": WEST, "E": EAST, "N": NORTH, "S": SOUTH}


def ports(letters):
    """Bits of ports: "RE" is RAMP and EAST."""
    return sum(1 << PORTS[letter] for letter in letters)


def config(*routes, current=0, **more):
    """A config of routes, "R>E" from RAMP to EAST, one for each switch position."""
    pairs = (route.split(">") for route in routes)
    return ColorConfig(tuple(Route(ports(rx), ports(tx)) for rx, tx in pairs), current, **more)


def fabric(width, height, routes, programs=None, tiles=None, **more):
    """A program of a rectangle.

    Args:
        routes: by color, a dict from (x, y) to a config
        programs: of the PEs; one that sends and takes all colors
        tiles: by row, numbers of programs; all 0
    """
    configs = list(dict.fromkeys(found for table in routes.values() for found in table.values()))
    tables = {}
    for color, table in routes.items():
        tables[color] = np.full((height, width), -1, np.int32)
        for (x, y), found in table.items():
            tables[color][y, x] = configs.index(found)
    colors = frozenset(routes)
    programs = programs or (PEProgram("pe.csl", "wse2", "", inputs=colors, outputs=colors),)
    grid = np.zeros((height, width), np.int32) if tiles is None else np.array(tiles, np.int32)
    return FabricProgram("wse2", width, height, grid, tuple(programs), tables, tuple(configs), **more)


def line(width, color=3, **more):
    """A row of PEs, each of which sends a color to the east, the last one nowhere."""
    table = {(x, 0): config("R>E") for x in range(0, width - 1, 2)}
    table |= {(x, 0): config("W>R") for x in range(1, width, 2)}
    return fabric(width, 1, {color: table}, **more)


def receives(pe, color, done=0, extent=12, thread=MAIN, **more):
    return ThreadWait(pe, thread, "fmovs", "receive", "main", "pe.csl:40:5", 2, color, None, done, extent, **more)


def sends(pe, color, done=0, extent=12, thread=MAIN, **more):
    return ThreadWait(pe, thread, "mov32", "send", "main", "pe.csl:44:5", 2, color, None, done, extent, **more)


def stuck(pe, port, color, outputs="", blocked="", reason="", position=0, count=2):
    """Wavelets in the buffer of a router."""
    wavelets = tuple(Wavelet(color, number) for number in range(count))
    numbers = (tuple(sorted(PORTS[letter] for letter in letters)) for letters in (outputs, blocked))
    return BufferWait(pe, PORTS[port], color, wavelets, position, *numbers, reason)


SENDS = """
def program(pe):
    def main():
        yield from pe.wait("mov32", (FabricOut(2, 3, {count}), Mem1d(0, {count}, 4, 4)), Settings())
    return {{"main": main}}
"""
TAKES = """
def program(pe):
    def main():
        yield from pe.wait("mov32", (Mem1d(0, {count}, 4, 4), FabricIn(2, {count})), Settings())
    return {{"main": main}}
"""
IMPORTS = "from cstool.csl.fabric.dsd import FabricIn, FabricOut, Mem1d, Settings\n"


def sender_and_receiver(sent, taken=None):
    """Two PEs: the left one sends wavelets of color 3, the right one takes as many, or another number."""
    main = {9: Task("main", "local", place="pe.csl:40:5")}
    left = PEProgram(
        "left.csl", "wse2", IMPORTS + SENDS.format(count=sent), tasks=main, activated=(9,), output_queues={2: 3},
        outputs=frozenset({3}),
    )  # fmt: skip
    right = PEProgram(
        "right.csl", "wse2", IMPORTS + TAKES.format(count=sent if taken is None else taken), tasks=main, activated=(9,),
        input_queues={2: 3}, inputs=frozenset({3}),
    )  # fmt: skip
    return fabric(2, 1, {3: {(0, 0): config("R>E"), (1, 0): config("W>R")}}, (left, right), [[0, 1]])
