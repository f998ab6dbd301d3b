"""Fabrics to draw: of one PE, of a few with switches, of many."""

import numpy as np

from cstool.csl.fabric.arch import PORTS
from cstool.csl.fabric.program import FabricProgram, PEProgram
from cstool.csl.fabric.stats import PER_PE, FabricStats
from tests.unit.csl.fabric.waits import config, fabric


def _programs(*names):
    colors = frozenset(range(24))
    return tuple(PEProgram(name, "wse2", "", inputs=colors, outputs=colors) for name in names)


def single() -> FabricProgram:
    return fabric(1, 1, {3: {(0, 0): config("R>R")}}, _programs("pe.csl"))


def switched() -> FabricProgram:
    """Four columns, three rows: a row that sends in turns, a two-way exchange, a broadcast, and mistakes."""
    turns = {
        (x, y): config("R>E") if x == 0 else config("W>E", "R>E") if x < 3 else config("W>R")
        for x in range(4)
        for y in range(3)
    }
    ring = {(x, 1): config("REW>REW", "R>E", "R>W", "EW>R") for x in range(4)}
    tree = {(0, 0): config("R>ES"), (1, 0): config("W>R"), (0, 1): config("N>RS"), (0, 2): config("N>R")}
    wrong = {(0, 0): config("R>E"), (1, 0): config("N>R"), (2, 2): config("RS>R")}
    tiles = [[0, 1, 1, 2]] * 3
    return fabric(4, 3, {0: turns, 5: ring, 9: tree, 21: wrong}, _programs("left.csl", "pe.csl", "right.csl"), tiles)


def many(width: int, height: int) -> FabricProgram:
    """Columns that send down, rows that sum up to the east, and a checkerboard of two colors."""
    down = {(x, y): config("R>S") if y == 0 else config("N>RS") if y < height - 1 else config("N>R")
            for x in range(width) for y in range(height)}  # fmt: skip
    even = {(x, y): config("R>E") if x % 2 == 0 else config("W>R") for x in range(width) for y in range(height)}
    for y in range(height):
        if width % 2:
            del even[width - 1, y]
    tiles = (np.arange(width) > 0)[None, :] * np.ones((height, 1), np.int32)
    return fabric(width, height, {1: down, 2: even}, _programs("edge.csl", "inner.csl"), tiles.tolist())


def stats(width: int, height: int, cycles: int = 1000) -> FabricStats:
    """A run in which the west is busier than the east, and rows carry sums."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    busy = (cycles * (0.9 - 0.7 * x / max(1, width)) * (1 - 0.3 * y / height)).astype(np.int64)
    pes = {name: busy // (n + 1) for n, name in enumerate(PER_PE)}
    links = {port: np.zeros((height, width), np.int64) for port in PORTS}
    links["EAST"][:, :-1] = (100 + 10 * x + 3 * y)[:, :-1]
    links["WEST"][:, 1:] = 20
    links["SOUTH"][:-1] = (5 * y + 40)[:-1]
    links["RAMP"][:] = 50
    return FabricStats("wse2", "simulator", cycles, pes, links)
