"""Errors of the simulated fabric. PEs are named x.y, counted from 0 at the north-west corner."""

from cstool.csl.fabric.arch import PORTS, RAMP
from cstool.csl.fabric.program import FabricProgram
from cstool.foundation.errors import CstoolError


class SimulationError(CstoolError):
    """The simulated program did something that the wafer cannot do, or that would never end.

    Args:
        message: *where: rule, got value*, one line
        hint: a remedy
        report: text of several lines that shows the state of the fabric, where there is one
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None, report: str | None = None) -> None:
        super().__init__(message, hint)
        self.report = report


def not_configured(program: FabricProgram, pe: int, color: int, side: int) -> SimulationError:
    """A wavelet comes by port `side` to a router that has no route for its color."""
    y, x = divmod(pe, program.width)
    origin = "from its own PE" if side == RAMP else f"from the {PORTS[side]}"
    return SimulationError(
        f"{program.name(pe)}: a router must have a route for each color that comes to it, "
        f"got a wavelet of color {color} {origin} and no route",
        f"@set_color_config({x}, {y}, ...) gives it one"
        + ("" if side == RAMP else f"; or the PE to the {PORTS[side]} must not send the color this way"),
    )


def off_rectangle(program: FabricProgram, pe: int, color: int, port: int) -> SimulationError:
    """A wavelet leaves the rectangle by `port`."""
    return SimulationError(
        f"{program.name(pe)}: routes must stay within the rectangle of {program.width} x {program.height} PEs, "
        f"got a wavelet of color {color} to the {PORTS[port]}",
        f"take {PORTS[port]} out of the color's tx at this PE",
    )


def nobody_takes(program: FabricProgram, pe: int, color: int, side: int) -> SimulationError:
    """A wavelet that came by port `side` goes down the ramp, and no input queue has its color."""
    found = program.program_of(pe)
    nobody = "its PE has no program" if found is None else f"{found.name} has none for it"
    return SimulationError(
        f"{program.name(pe)}: a color that goes down the ramp must have an input queue, "
        f"got a wavelet of color {color} from {PORTS[side]} to RAMP, and {nobody}",
        "bind an input queue to the color there, or take RAMP out of its tx at this PE",
    )


def conflict(program: FabricProgram, pe: int, color: int, sides: tuple[int, int], time: int) -> SimulationError:
    """Two input ports have a wavelet of one color for the same router, in one cycle."""
    first, second = (PORTS[side] for side in sides)
    return SimulationError(
        f"{program.name(pe)}: a color must come from one port at a time, "
        f"got color {color} used by two routes in conflict, from {first} and from {second} in cycle {time}",
        "routers do not choose between two inputs of a color: use two colors, or switch positions that take turns",
    )
