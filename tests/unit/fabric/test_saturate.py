"""What is not simulated of settings is refused, on memory too: a result must not be wrong in silence."""

import pytest

from cstool.fabric.errors import SimulationError
from tests.unit.fabric.pe_run import program, run


@pytest.mark.parametrize(
    "begins",
    [
        "yield from pe.wait('add16', (a, a, 1), Settings(saturate=True))",
        "pe.start('add16', (a, a, 1), Settings(saturate=True))",
    ],
)
def test_saturated_integers_are_refused(begins):
    body = f"def main():\n    a = Mem1d(0, 4, 2, 2)\n    {begins}"
    with pytest.raises(SimulationError) as error:
        run(program(body, memory=bytes(8)))
    assert str(error.value).splitlines()[0] == "PE 0.0, task main (pe.csl:4:1): @add16 with .saturate is not simulated"
