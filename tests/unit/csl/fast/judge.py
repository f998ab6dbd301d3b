"""The reference engine as the judge of the fast one: both run a program, and nothing may differ."""

from itertools import islice
from typing import Any

import numpy as np

from cstool.csl.fabric.deadlock import deadlock_report
from cstool.csl.fabric.errors import SimulationError
from cstool.csl.fabric.program import FabricProgram, Symbol
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fast.simulation import FastSimulation
from cstool.csl.sdk.sim_log import SimLog

TOO_LONG = "it does not end"
Launch = tuple[int, Symbol, tuple[int | float, ...]]
"""a PE, an exported function, its arguments"""


def function_launches(program: FabricProgram, name: str | None = None) -> list[Launch]:
    """A call of a function (None: of each) on each PE that exports it, with arguments of small numbers."""
    found: list[Launch] = []
    for pe, tile in enumerate(program.tiles.reshape(-1).tolist()):
        symbols = program.programs[tile].symbols if tile >= 0 else {}
        for each, symbol in symbols.items():
            if symbol.kind == "function" and name in (None, each):
                arguments = (0.5 + k if letter in "fe" else 1 + k for k, letter in enumerate(symbol.parameters))
                found.append((pe, symbol, tuple(arguments)))
    return found


def differences(program: FabricProgram, launches: list[Launch], max_cycles: int = 3000, **how: Any) -> list[str]:
    """What the engines do not agree on; nothing, if all is well.

    A float that is no number stays one, but its bits may differ where the reference computes many elements at once.
    """
    judge, seen = outcome(Simulation(program, max_cycles=max_cycles, **how), launches)
    fast, shown = outcome(FastSimulation(program, max_cycles=max_cycles, **how), launches)
    found = [f"{name}: {seen[name]!r}, the fast engine {shown[name]!r}" for name in seen if seen[name] != shown[name]]
    if seen["error"] is not None:  # an operation that failed has gone further, or not as far
        return found
    for pe, (one, other) in enumerate(zip(judge.pes, fast.pes, strict=True)):
        places = _different(bytes(one.u8), bytes(other.u8))
        if places:
            found.append(f"PE {pe}: SRAM at bytes {', '.join(map(str, islice(places, 8)))}")
    return found


def outcome(simulation: Any, launches: list[Launch]) -> tuple[Any, dict[str, Any]]:
    """The simulation at its end, and what is seen of it."""
    log = SimLog()

    def say(time: int, pe: int, text: str) -> None:
        log.say(simulation.events.now, pe, time, f"PE {pe}: {text}")

    simulation.on_say = simulation.on_print = say
    error = None
    try:
        for pe, symbol, arguments in launches:
            simulation.launch(pe, symbol, arguments)
        simulation.run_until()
    except SimulationError as raised:
        # The fast engine looks at the limit in loops of code, too; the reference does by the clock (`fabric.watch`).
        error = TOO_LONG if "end within" in str(raised) else str(raised)
    seen: dict[str, Any] = {"error": error, "said": log.lines}
    if error is None:
        stats = simulation.stats()
        seen |= {"cycles": stats.cycles, "PEs": stats.pes, "hops": stats.hops}
        waits = [*simulation.network.waiting(), *(wait for pe in simulation.pes for wait in pe.waiting())]
        seen["waits"] = deadlock_report(simulation.program, stats.cycles, waits, simulation.network.config)
    return simulation, seen


def _different(one: bytes, other: bytes) -> list[int]:
    """Bytes that differ, without those of two NaNs: of a float32, or of a float16."""
    if one == other:
        return []
    left, right = np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)
    same = left == right
    for dtype, size in ((np.float32, 4), (np.float16, 2)):
        both = np.isnan(left.view(dtype)) & np.isnan(right.view(dtype))
        same |= np.repeat(both, size)
    found: list[int] = np.flatnonzero(~same).tolist()
    return found
