"""Small fabric programs by hand: code of PEs as text, a row of PEs with colors along it."""

import re
import textwrap

from cstool.csl.fabric.program import PEProgram, Task
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fabric.wavelet import Events
from tests.unit.csl.fabric.waits import config, fabric


def task(function, kind="local", **fields):
    return Task(function, kind, place=f"pe.csl:{len(function)}:1", **fields)


USUAL = {"main": 8, "nine": 9, "ten": 10, "eleven": 11}
"""ids of local tasks by their functions"""


def program(body, *, arch="wse2", tasks=None, memory=b"", **fields):
    """A PE program; `body` defines functions of `pe`. The USUAL ones are local tasks; `main` starts activated."""
    code = (
        "from cstool.csl.fabric.dsd import *\n"
        "PLAIN = Settings()\n"
        "def program(pe):\n"
        "    pe.log = log = []\n"
        "    def note(name): log.append((name, pe.time()))\n"
        f"{textwrap.indent(textwrap.dedent(body), '    ')}\n"
        "    return {name: value for name, value in locals().items() if callable(value)}\n"
    )
    defined = re.findall(r"^\s*def (\w+)\(", body, re.MULTILINE)
    found = {USUAL[name]: task(name) for name in defined if name in USUAL} | (tasks or {})
    fields.setdefault("activated", tuple(number for number, each in found.items() if each.function == "main"))
    fields.setdefault("inputs", frozenset(fields.get("input_queues", {}).values()))
    fields.setdefault("outputs", frozenset(fields.get("output_queues", {}).values()))
    return PEProgram("pe.csl", arch, code, bytes(memory), tasks=found, **fields)


def main(*lines):
    """The function `main` of these lines."""
    return "def main():\n" + textwrap.indent("\n".join(lines), "    ")


def row(*programs, colors=(), **how):
    """A simulation of a row of PEs. `colors`: (color, x of the sender, xs of the receivers, to the right of it)."""
    routes = {}
    for color, sender, receivers in colors:
        last = max(receivers)
        routes[color] = {
            (x, 0): config(f"{'R' if x == sender else 'W'}>{'R' * (x in receivers)}{'E' * (x < last)}")
            for x in range(sender, last + 1)
        }
    tiles = [list(range(len(programs)))]
    return Simulation(fabric(len(programs), 1, routes, programs, tiles, arch=programs[0].arch), **how)


def run(*programs, colors=(), **how):
    """Run a row of PEs to its end; the PEs."""
    simulation = row(*programs, colors=colors, **how)
    simulation.run_until()
    return simulation.pes


class ShuffledEvents(Events):
    """Events of one cycle happen in any order."""

    def __init__(self, random):
        super().__init__()
        self.random = random

    def cycle(self):
        time = self.next_time()
        if time is None:
            return False
        if time != self.now:
            self.now, self._next = time, 0
        events = self._cycles[time]
        while self._next < len(events):
            at = self.random.randrange(self._next, len(events))
            events[at], events[self._next] = events[self._next], events[at]
            action, arguments = events[self._next]
            self._next += 1
            action(*arguments)
        self.done += len(events)
        return True
