"""Both engines of the fabric, for tests of what a host and reports see of them."""

from collections.abc import Callable
from typing import Any

import pytest

from cstool.csl.fabric.simulation import Simulation
from cstool.csl.fast.simulation import FastSimulation


@pytest.fixture(
    params=[
        pytest.param(Simulation, id="reference"),
        pytest.param(FastSimulation, id="fast", marks=pytest.mark.takes("the engine is compiled first")),
    ]
)
def simulate(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a simulation of a program, by one engine."""
    made: Callable[..., Any] = request.param
    return made
