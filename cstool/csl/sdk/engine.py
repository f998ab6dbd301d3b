"""The choice of the engine that simulates a program: the fast one, or the reference, which judges it."""

import os
from importlib.util import find_spec
from typing import Any

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.sdk.variables import ENGINE_VARIABLE, ENGINES
from cstool.foundation.errors import CstoolError

MANY_PES = 1000
"""PEs from which on a simulation waits for the fast engine to be compiled"""


def open_simulation(program: FabricProgram, **how: Any) -> Any:
    """Return a simulation of a program, with the same bits and cycles by either engine.

    Args:
        how: arguments of both engines, by name

    Raises:
        CstoolError: an engine is asked for that is not there
    """
    if is_fast(program):
        from cstool.csl.fast.simulation import FastSimulation, UnsupportedError, strips_for

        try:
            return FastSimulation(program, strips=strips_for(program), **how)
        except UnsupportedError:
            if os.environ.get(ENGINE_VARIABLE) == "fast":
                raise
    return Simulation(program, **how)


def is_fast(program: FabricProgram) -> bool:
    """Whether the fast engine simulates a program. It takes a minute to compile, once.

    Raises:
        CstoolError: an engine is asked for that is not there
    """
    name = os.environ.get(ENGINE_VARIABLE) or ENGINES[0]
    if name not in ENGINES:
        raise CstoolError(f"{ENGINE_VARIABLE}: must be {' or '.join(ENGINES)}, got {name!r}")
    has_numba = find_spec("numba") is not None  # not in an installation for CSL alone
    if name == "fast" and not has_numba:
        raise CstoolError(f"{ENGINE_VARIABLE}: fast must find numba, it is not installed", "pip install numba")
    if name != "auto" or not has_numba:
        return name == "fast"
    from cstool.csl.fast.ahead import begin_compiling, is_compiled

    if is_compiled() or program.tiles.size >= MANY_PES:
        return True
    begin_compiling()
    return False
