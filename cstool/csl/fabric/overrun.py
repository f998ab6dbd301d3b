"""Ends a task that computes for ever: its code never returns to the check of the cycle limit."""

import signal
from types import FrameType

from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.simulation import Simulation

INTERVAL = 0.25
"""seconds between two looks at the running task: it affects when an endless one is noticed, not whether it is"""


def watch(simulation: Simulation) -> None:
    """Have the main thread of this process look, now and then, at the clock of the PE whose code it runs.

    Past the limit it ends with an error; without a limit nothing is watched. A look costs the code nothing; a check in
    each turn of its loops would.

    Args:
        simulation: run by the main thread, with the signal SIGALRM free
    """
    limit = simulation.max_cycles
    if limit is None:
        return
    programs = {program.name for program in simulation.program.programs}

    def look(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        inner, pe, function = frame, None, ""
        while inner is not None:
            # Emitted code has its program's name as its file, and its PE as `pe`; the outermost function is the task.
            if inner.f_code.co_filename in programs and "pe" in inner.f_locals:
                pe, function = inner.f_locals["pe"], inner.f_code.co_name
            inner = inner.f_back
        if pe is not None and pe.base + pe.cycles > limit:
            raise SimulationError(
                f"PE {pe.x}.{pe.y}, task {function}: must end within {limit} cycles, it goes on",
                "a longer --max_cycles lets it go on; look at its loops: what ends them?",
            )

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
