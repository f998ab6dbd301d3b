"""A look at a long simulation, now and then: it ends a task that computes for ever, and says that it still simulates.

The clock of this machine decides when a line is printed, and when an endless task is noticed; no result depends on it.
"""

import os
import signal
import sys
import time
from types import FrameType

from cstool.csl.fabric.errors import at_task, endless
from cstool.csl.fabric.program import Task
from cstool.csl.fabric.simulation import Simulation

SIMULATES = Simulation.run_until.__name__
"""the function of an engine in which cycles pass"""
INTERVAL = 0.25
"""seconds between two looks"""
PULSE = 10.0
"""seconds of simulation without a pause until the first line; the next come after twice as many, four times, ..."""


class Watch:
    """Looks at a simulation that the main thread of this process runs. A look costs the code nothing between looks.

    Args:
        simulation: the simulation
        pulse: seconds until the first line
    """

    def __init__(self, simulation: Simulation, pulse: float = PULSE) -> None:
        self._simulation = simulation
        self._programs = {program.name for program in simulation.program.programs}
        self._pulse = pulse
        self._since: float | None = None
        self._due = pulse

    def start(self) -> None:
        """Look from now on; the signal SIGALRM must be free."""
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)

    def _look(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        pe, function, simulates = None, "", False
        while frame is not None:
            # Emitted code has its program's name as its file, and its PE as `pe`; the outermost function is the task.
            if frame.f_code.co_filename in self._programs and "pe" in frame.f_locals:
                pe, function = frame.f_locals["pe"], frame.f_code.co_name
            simulates = simulates or frame.f_code.co_name == SIMULATES
            frame = frame.f_back
        limit, program = self._simulation.limit, self._simulation.program
        if pe is not None and limit is not None and pe.base + pe.cycles > limit:
            raise at_task(program, pe.index, Task(function, "local"), endless(limit))
        self._say(simulates)

    def _say(self, simulates: bool) -> None:
        """Print a line if it is time for one."""
        now = time.monotonic()
        if not simulates or self._since is None:
            self._since, self._due = (now if simulates else None), self._pulse
        elif now - self._since >= self._due:
            self._due *= 2
            # Not print(): this may interrupt one.
            os.write(sys.stderr.fileno(), f"{state(self._simulation, now - self._since)}\n".encode())


def state(simulation: Simulation, seconds: float) -> str:
    """The state of a simulation after seconds of work, in one line: the cycle, and the PE that computed longest."""
    found = simulation.busiest()
    cycle = max(simulation.events.now, found.cycle)
    task = found.task
    what = "without a task so far"
    if task is not None:
        at = f" ({task.place})" if task.place else ""
        what = f"{found.busy / max(cycle, 1):.0%} of them, in task {task.function}{at}"
    name = simulation.program.name(found.pe)
    return (
        f"still simulating after {seconds:.0f} s: {cycle:,} cycles; {name} is the busiest, {what}; "
        "Ctrl-C ends it, --max_cycles N (CSTOOL_FABRIC_MAX_CYCLES=N) at cycle N"
    )
