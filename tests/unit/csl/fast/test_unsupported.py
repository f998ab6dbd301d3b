"""Programs that the fast engine cannot simulate."""

import pytest

from cstool.csl.fast.simulation import FastSimulation, UnsupportedError
from tests.unit.csl.fabric.pe_run import fabric, program


def test_code_that_is_not_the_compilers_is_refused():
    with pytest.raises(UnsupportedError) as caught:
        FastSimulation(fabric(1, 1, {}, (program(""),), [[0]]))
    assert str(caught.value) == (
        "the fast engine must know all that code of PEs does, it does not know the statement 'pe.log = log = []' of a "
        "program\nhint: --engine reference (CSTOOL_FABRIC_ENGINE=reference) simulates it"
    )
