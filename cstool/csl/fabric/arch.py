"""Limits of a PE of the two wafers that CSL is compiled for; programs are checked against them.

Sources: SDK 2.10 documentation (task ids, DSDs, DSRs), gathered in `docs/csl/csl.md`.
"""

from dataclasses import dataclass

SRAM_BYTES = 48 * 1024
"""SRAM of one PE."""

COLORS = 24
"""Colors of wavelets: 0 to 23."""

TASK_IDS = 64

OWN_QUEUES = 8
"""Queue numbers from here on: the own queue of color 0, 1, ... On WSE-2 a stream without a queue has its color's."""
OWN_QUEUE = 4
"""Capacity of the own queue of a color (WSE-2). Ours: the middle of the queues' sizes (F12)."""
ANY_COLOR = -1
"""Among colors that a program takes: any, which is known at run time alone."""

PORTS = ("RAMP", "WEST", "EAST", "NORTH", "SOUTH")
"""Ports of a router, by number. y grows to the SOUTH."""
RAMP, WEST, EAST, NORTH, SOUTH = range(5)
OPPOSITE = (RAMP, EAST, WEST, SOUTH, NORTH)
STEP = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
"""dx, dy to the neighbour behind each port."""


def ports_text(ports: int, between: str, none: str) -> str:
    """The names of a set of ports; `none` for the empty one."""
    return between.join(name for port, name in enumerate(PORTS) if ports >> port & 1) or none


@dataclass(frozen=True)
class Arch:
    """One generation.

    Args:
        name: as `--arch` and `@is_arch` have it
        input_queues: wavelets that each input queue holds
        output_queues: likewise, output queues
        microthreads: threads beside the main one
        local_tasks: ids that a local task may have
        data_tasks_by_queue: whether a data task's id is its input queue's number, not its color's
        dsrs: registers in the files dest, src0, src1
        widths: elements a cycle of each vector operation; 1 for an operation not listed
    """

    name: str
    input_queues: tuple[int, ...]
    output_queues: tuple[int, ...]
    microthreads: int
    local_tasks: range
    data_tasks_by_queue: bool
    dsrs: tuple[int, int, int]
    widths: dict[str, int]


_WIDTHS = """
fmach 4 8 | fmachs 2 4 | faddh 4 8 | fmulh 4 8 | fsubh 4 8 | fmovh 4 8 | fadds 2 4 | fsubs 2 4 | fmovs 2 4 | faddhs 2 4
mov16 4 8 | mov32 2 4 | add16 4 8 | fmaxh 1 8 | fmaxs 1 4 | fh2s 1 4 | fs2h 1 4
"""


def _widths(column: int) -> dict[str, int]:
    rows = (row.split() for line in _WIDTHS.strip().splitlines() for row in line.split("|"))
    return {name: int(numbers[column]) for name, *numbers in rows}


WSE2 = Arch("wse2", (6, 6, 4, 4, 2, 2, 2, 2), (2, 2, 6, 6, 2, 2), 8, range(31), False, (16, 16, 16), _widths(0))
WSE3 = Arch("wse3", (8, 8, 4, 4, 4, 4, 4, 4), (8,) * 8, 8, range(8, 31), True, (16, 16, 16), _widths(1))
ARCHS = {arch.name: arch for arch in (WSE2, WSE3)}
