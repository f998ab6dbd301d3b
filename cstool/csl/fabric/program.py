"""Input of the simulation: the program of each PE, the routes of each color, the names for the host. Frozen data.

`cslc` writes it, `cs_python` loads it; tests of the fabric make it by hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import STEP


@dataclass(frozen=True)
class Route:
    """Input ports and output ports of a router for one color: bit sets over `arch.PORTS`."""

    rx: int
    tx: int


@dataclass(frozen=True)
class Filter:
    """A filter of the wavelets of a color that a router lets down its ramp.

    Args:
        kind: "range" (index within bounds), "sparse_range", or "counter" (numbers up to a limit, again and again)
        limits: kind's own numbers, in the order of their names in CSL
        control: whether control wavelets count, or pass
    """

    kind: str
    limits: tuple[int, ...]
    control: bool = True


@dataclass(frozen=True)
class ColorConfig:
    """A color at one router.

    Args:
        positions: the routes at switch positions 0, 1, 2, 3, one to four
        current: the position at the start
        ring: whether advancing from the last position leads to the first; else it stays
        pop: "no_pop", "always_pop", "pop_on_advance": whether a control wavelet loses the command that it executed
        teardown: whether the color starts in teardown: no wavelet passes until the program ends it
        filter: of wavelets that go down the ramp
        swap: output ports at which the lowest bit of a wavelet's color is flipped: `color_swap_x` 1 (EAST and WEST),
            `color_swap_y` 2 (NORTH and SOUTH), both 3 (all of these, and RAMP)
    """

    positions: tuple[Route, ...]
    current: int = 0
    ring: bool = False
    pop: str = "no_pop"
    teardown: bool = False
    filter: Filter | None = None
    swap: int = 0


@dataclass(frozen=True)
class Task:
    """A task of a PE program, under its id.

    Args:
        function: its name in the compiled code
        kind: "local", "data", "control", or "teardown": calls the program's handlers
        argument: for a data task: its arguments from the 32 bits of a wavelet, a letter each, low bits first:
            "w" all as u32, "i" i32, "f" f32, "H" u16, "h" i16, "e" f16; () is none.
            A control task takes the data half: () or one 16-bit letter.
        queue: for a data task: the input queue that its wavelets come through; None: one of the color's own
        color: likewise their color
        place: its place in the source, for messages
    """

    function: str
    kind: str
    argument: tuple[str, ...] = ()
    queue: int | None = None
    color: int | None = None
    place: str = ""


@dataclass(frozen=True)
class FifoBuffer:
    """A FIFO in SRAM, and the tasks to activate after a push or pop (or at a limit)."""

    address: int
    capacity: int
    width: int
    activate_push: int | None = None
    activate_pop: int | None = None


@dataclass(frozen=True)
class Symbol:
    """An export of a PE to the host.

    Args:
        kind: "variable" or "function"
        address: of the pointer's target in SRAM, bytes (a variable)
        pointer: address of the exported pointer variable; None where there is none
        letter: element type, a letter as in `Task.argument`
        count: elements known of the target; 0 if unknown
        parameters: letters of a function's parameters
        function: its name in the compiled code
        place: a function's place in the source
    """

    kind: str
    address: int = 0
    pointer: int | None = None
    letter: str = "w"
    count: int = 0
    parameters: tuple[str, ...] = ()
    function: str = ""
    place: str = ""


@dataclass(frozen=True)
class Handler:
    """A function that the teardown task calls.

    Args:
        kind: "color": while that is in teardown; "input" or "output": while a queue that is to be flushed is empty
        number: of the color or queue
        function: its name in the compiled code
    """

    kind: str
    number: int
    function: str


@dataclass(frozen=True)
class PEProgram:
    """One CSL file with its parameters, compiled.

    Args:
        name: name of the file in messages
        arch: name of its `Arch`
        code: Python text that defines `program(pe)`, which returns the functions of one PE by name
            (`fabric.interface`)
        memory: the first bytes of SRAM when the program starts; the rest is zero
        sram: bytes by their use, largest first: ("A: [24]f32", 96)
        tasks: by task id
        control_tasks: by task id, where they have a table of their own (WSE-3); else they are among `tasks`
        handlers: what a task of kind "teardown" calls, one after the other
        blocked: task ids that start blocked
        activated: local task ids that start activated
        input_queues: color by queue, where bound
        output_queues: likewise
        recolored: colors by input queue, where DSDs name several for it (WSE-2): it has none of them until an operation
            gives it one
        colors: configs that the program itself sets for its PE (`@set_local_color_config`), by color
        fifos: by number
        symbols: exported symbols, by name
        variables: global variables of the file itself that have memory, by name
        inputs: colors that something in the program takes from the ramp; `arch.ANY_COLOR` among them: any color
        outputs: colors that something in the program sends
        statements: places of statements in the source ("pe.csl:40:5"), by the line of `code` that each begins at
    """

    name: str
    arch: str
    code: str
    memory: bytes = b""
    sram: tuple[tuple[str, int], ...] = ()
    tasks: Mapping[int, Task] = field(default_factory=dict)
    control_tasks: Mapping[int, Task] = field(default_factory=dict)
    handlers: tuple[Handler, ...] = ()
    blocked: frozenset[int] = frozenset()
    activated: tuple[int, ...] = ()
    input_queues: Mapping[int, int] = field(default_factory=dict)
    output_queues: Mapping[int, int] = field(default_factory=dict)
    recolored: Mapping[int, frozenset[int]] = field(default_factory=dict)
    colors: Mapping[int, ColorConfig] = field(default_factory=dict)
    fifos: tuple[FifoBuffer, ...] = ()
    symbols: Mapping[str, Symbol] = field(default_factory=dict)
    variables: Mapping[str, Symbol] = field(default_factory=dict)
    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    statements: Mapping[int, str] = field(default_factory=dict)

    def variable(self, name: str) -> Symbol | None:
        """An exported variable, or one of the file; None: there is none of this name."""
        found = self.symbols.get(name) or self.variables.get(name)
        return None if found is None or found.kind != "variable" else found


@dataclass(frozen=True)
class Exported:
    """An export of the layout: `@export_name`. Host scripts know it by its place in `FabricProgram.exported`.

    Args:
        name: name
        kind: "variable" or "function"
        letter: element type of a variable
        mutable: whether the host may write it
        parameters: letters of a function's parameters
    """

    name: str
    kind: str
    letter: str = "w"
    mutable: bool = False
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostPort:
    """A stream between the host and one PE, of a layout in Python.

    Args:
        name: name for host scripts
        x, y: column and row of the PE in the rectangle
        color: color between the host and the PE
        is_input: whether the host sends
        size: words that the port at its other end is made for; 0: unknown
    """

    name: str
    x: int
    y: int
    color: int
    is_input: bool
    size: int = 0


@dataclass(frozen=True)
class Initial:
    """Values of a variable at the start of a run.

    Args:
        variable: its name
        pes: [n] int32: PEs
        content: [n, bytes] uint8: the bytes that each has
    """

    variable: str
    pes: NDArray[np.int32]
    content: NDArray[np.uint8]


@dataclass(frozen=True)
class FabricProgram:
    """A rectangle of PEs with all data to run it.

    Args:
        arch: name of its `Arch`
        width, height: PEs of the rectangle
        tiles: [height, width] int32, index into `programs` for each PE
        programs: distinct programs
        routes: by color, [height, width] int32: index into `configs` for each router; -1: none. Local configs of
            programs are in it already.
        configs: distinct configs
        exported: names for the host
        params: values of `--params` and `--colors`, by name, as text
        colors: values of `--colors` alone
        fabric: columns and rows of the fabric, halo and all
        offset: x and y of the rectangle in it
        memcpy: whether the host talks to it through memcpy
        streams: colors by use: "MEMCPYH2D_1" -> 0
        channels: I/O channels between the host and the fabric
        ports: streams of single PEs
        origin: column and row by which host scripts know the first PE; layouts in Python count on the fabric
        data: values of variables at the start, beside their programs' own
    """

    arch: str
    width: int
    height: int
    tiles: NDArray[np.int32]
    programs: tuple[PEProgram, ...]
    routes: Mapping[int, NDArray[np.int32]] = field(default_factory=dict)
    configs: tuple[ColorConfig, ...] = ()
    exported: tuple[Exported, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    colors: Mapping[str, str] = field(default_factory=dict)
    fabric: tuple[int, int] = (0, 0)
    offset: tuple[int, int] = (0, 0)
    memcpy: bool = True
    streams: Mapping[str, int] = field(default_factory=dict)
    channels: int = 1
    ports: tuple[HostPort, ...] = ()
    origin: tuple[int, int] = (0, 0)
    data: tuple[Initial, ...] = ()

    def name(self, pe: int) -> str:
        """A PE by the column and row that scripts know, for messages: `PE 1.0`. PEs are numbered y * width + x."""
        return f"PE {pe % self.width + self.origin[0]}.{pe // self.width + self.origin[1]}"

    def program_of(self, pe: int) -> PEProgram | None:
        """The program of a PE; None where it has none."""
        number = int(self.tiles[divmod(pe, self.width)])
        return None if number < 0 else self.programs[number]

    def config_of(self, pe: int, color: int) -> ColorConfig | None:
        """The initial config of a color at the router of a PE; None where the color has no route."""
        table = self.routes.get(color)
        number = -1 if table is None else int(table[divmod(pe, self.width)])
        return None if number < 0 else self.configs[number]

    def configs_of(self, color: int) -> list[tuple[ColorConfig, int]]:
        """The configs of a color, and the number of routers with each."""
        table = self.routes[color]
        numbers, counts = np.unique(table[table >= 0], return_counts=True)
        return [(self.configs[number], int(count)) for number, count in zip(numbers, counts, strict=True)]

    def ends_of(self, color: int) -> tuple[int, int]:
        """The PEs at which routes of a color begin, and to which they lead."""
        counts = self.configs_of(color)
        sends = sum(count for config, count in counts if any(route.rx & 1 for route in config.positions))
        return sends, sum(count for config, count in counts if any(route.tx & 1 for route in config.positions))

    def beside(self, pe: int, port: int) -> int | None:
        """The neighbour behind a port of a router; None outside the rectangle."""
        x, y = pe % self.width + STEP[port][0], pe // self.width + STEP[port][1]
        return y * self.width + x if 0 <= x < self.width and 0 <= y < self.height else None
