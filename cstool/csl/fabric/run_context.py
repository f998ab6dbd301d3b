"""Parts of a trace beside its events: routes and variables, the source, the log, and the end of the run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.csl.fabric.arch import PORTS
from cstool.csl.fabric.arrays import check_numbers
from cstool.csl.fabric.operations import BYTES
from cstool.csl.fabric.program import FabricProgram, PEProgram

if TYPE_CHECKING:
    from cstool.csl.fabric.simulation import Simulation


class Variable(NamedTuple):
    """A variable of a PE program.

    Args:
        name: its name
        letter: element type, a letter as in `Task.argument`
        elements: number of its elements
    """

    name: str
    letter: str
    elements: int


class RouterConfig(NamedTuple):
    """A color at a router before the run.

    Args:
        positions: (rx, tx) of each switch position, sets of ports as of `program.Route`
        current: the position
        teardown: whether nothing passes
    """

    positions: tuple[tuple[int, int], ...]
    current: int
    teardown: bool


@dataclass(frozen=True)
class RunContext:
    """A run beside its events.

    Args:
        origin: column and row that scripts know the first PE by
        configs: distinct configs of colors at routers
        routes: [height, width] by color, index into `configs`, -1 for none
        streams: colors of the host's streams, by name
        variables: by program
        sources: text of source files, by the name that places have
        log: (cycle, line): acts of the host, and lines of programs
        failure: the error that ended the run, its report below; "" for none
        cycles: the last cycle
        memory: uint8: the variables of each PE with a program, PE by PE, as they were at the end; empty: not known
    """

    origin: tuple[int, int]
    configs: tuple[RouterConfig, ...]
    routes: Mapping[int, NDArray[np.int32]]
    streams: Mapping[str, int]
    variables: tuple[tuple[Variable, ...], ...]
    sources: Mapping[str, str]
    log: tuple[tuple[int, str], ...]
    failure: str
    cycles: int
    memory: NDArray[np.uint8]

    def at_end(
        self, simulation: "Simulation", sources: Mapping[str, str], log: Iterable[tuple[int, str]], failure: str
    ) -> "RunContext":
        """The same at the end of a run."""
        raw = b"".join(_memory(simulation, pe) for pe in range(len(simulation.pes)))
        return replace(
            self,
            sources=dict(sources),
            log=tuple(log),
            failure=failure,
            cycles=simulation.events.now,
            memory=np.frombuffer(raw, np.uint8),
        )

    def plain(self) -> dict[str, Any]:
        """All but the arrays, for JSON."""
        names = ("origin", "configs", "streams", "variables", "sources", "log", "failure", "cycles")
        return {name: getattr(self, name) for name in names}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays, by name."""
        return {"memory": self.memory} | {f"route_{color}": table for color, table in self.routes.items()}


def context_of(program: FabricProgram) -> RunContext:
    """The context of a program that has not run."""
    configs = tuple(
        RouterConfig(tuple((route.rx, route.tx) for route in each.positions), each.current, each.teardown)
        for each in program.configs
    )
    return RunContext(
        origin=program.origin,
        configs=configs,
        routes=program.routes,
        streams=program.streams,
        variables=tuple(tuple(variables_of(each)) for each in program.programs),
        sources={},
        log=(),
        failure="",
        cycles=0,
        memory=np.zeros(0, np.uint8),
    )


def variables_of(program: PEProgram) -> Iterable[Variable]:
    """Variables of a program, by name; where the number of elements is unknown, the first one."""
    for name in sorted({**program.variables, **program.symbols}):
        found = program.variable(name)
        if found is not None:
            yield Variable(name, found.letter, max(1, found.count))


def _memory(simulation: "Simulation", pe: int) -> bytes:
    """The variables of a PE, one behind the other."""
    if simulation.program.program_of(pe) is None:
        return b""
    end = simulation.pes[pe]
    found = []
    for name, letter, count in variables_of(end.program):
        symbol = end.program.variable(name)
        assert symbol is not None  # it is of `variables_of`
        address = symbol.address if symbol.pointer is None else int(end.load("H", symbol.pointer))
        size = count * BYTES[letter]
        found.append(bytes(end.u8[address : address + size]).ljust(size, b"\0"))
    return b"".join(found)


def read_context(
    plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int], programs: int
) -> RunContext:
    """The context of a trace from its two parts.

    Args:
        plain: as of `RunContext.plain`, read from JSON
        arrays: all arrays of the file
        shape: height and width
        programs: number of programs

    Raises:
        LookupError, TypeError, ValueError: it is damaged
    """
    x, y = plain["origin"]
    found = RunContext(
        origin=(int(x), int(y)),
        configs=tuple(_config(*each) for each in plain["configs"]),
        routes={int(name[6:]): table for name, table in arrays.items() if name.startswith("route_")},
        streams={str(name): int(color) for name, color in plain["streams"].items()},
        variables=tuple(tuple(_variable(*each) for each in of_one) for of_one in plain["variables"]),
        sources={str(name): str(text) for name, text in plain["sources"].items()},
        log=tuple((int(cycle), str(line)) for cycle, line in plain["log"]),
        failure=str(plain["failure"]),
        cycles=int(plain["cycles"]),
        memory=arrays["memory"],
    )
    for table in found.routes.values():
        check_numbers(table, shape, len(found.configs))
    if len(found.variables) != programs or found.memory.dtype != np.uint8 or found.memory.ndim != 1:
        raise ValueError("variables do not fit the programs")
    return found


def _config(positions: list[list[int]], current: int, teardown: bool) -> RouterConfig:
    every = tuple((int(rx), int(tx)) for rx, tx in positions)
    if not all(0 <= ports < 1 << len(PORTS) for each in every for ports in each) or not 0 <= int(current) < 4:
        raise ValueError("a route leads nowhere")
    return RouterConfig(every, int(current), bool(teardown))


def _variable(name: str, letter: str, count: int) -> Variable:
    if letter not in BYTES or int(count) < 1:
        raise ValueError("a variable has no such type")
    return Variable(str(name), letter, int(count))
