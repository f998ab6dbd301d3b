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


def fabric(width, height, routes, programs=None, tiles=None, arch="wse2", **more):
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
    programs = programs or (PEProgram("pe.csl", arch, "", inputs=colors, outputs=colors),)
    grid = np.zeros((height, width), np.int32) if tiles is None else np.array(tiles, np.int32)
    return FabricProgram(arch, width, height, grid, tuple(programs), tables, tuple(configs), **more)


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


CODE = """
from cstool.csl.fabric.dsd import FabricIn, FabricOut, Mem1d, Settings
def program(pe):
    def main():
        yield from pe.wait("mov32", ({operands}), Settings())
    return {{"main": main}}
"""


def sender_and_receiver(sent, taken=None):
    """Two PEs: the left one sends wavelets of color 3, the right one takes as many, or another number."""
    own = {"tasks": {9: Task("main", "local", place="pe.csl:40:5")}, "activated": (9,)}
    count, color = sent if taken is None else taken, frozenset({3})
    send = CODE.format(operands=f"FabricOut(2, 3, {sent}), Mem1d(0, {sent}, 4, 4)")
    take = CODE.format(operands=f"Mem1d(0, {count}, 4, 4), FabricIn(2, {count})")
    left = PEProgram("left.csl", "wse2", send, output_queues={2: 3}, outputs=color, **own)
    right = PEProgram("right.csl", "wse2", take, input_queues={2: 3}, inputs=color, **own)
    return fabric(2, 1, {3: {(0, 0): config("R>E"), (1, 0): config("W>R")}}, (left, right), [[0, 1]])
