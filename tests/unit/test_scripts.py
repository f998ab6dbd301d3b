"""Some of what `python -m tests.fuzz_scripts` tries: nothing in a value runs, or is written elsewhere."""

import pytest

from tests.fuzz_scripts import KINDS, fuzz

INPUTS = 150


@pytest.mark.takes("bash runs sixty scripts")
def test_no_value_runs(tmp_path):
    outcomes = list(fuzz(tmp_path, 7, range(INPUTS)))
    assert [number for number, _, _ in outcomes] == [*range(INPUTS)]
    assert {kind for _, kind, _ in outcomes} == {*KINDS}
    # Not all values are refused: scripts run, and programs are simulated.
    found = [outcome for _, _, outcome in outcomes]
    assert found.count("run") + found.count("simulated") > INPUTS / 4


@pytest.mark.lab
def test_no_value_of_many_runs(tmp_path):
    assert len(list(fuzz(tmp_path, 1, range(2000)))) == 2000
