"""Commands about spoilt files, with odd arguments: some of what `python -m tests.fuzz_commands` types."""

import pytest
import typer

from cstool.training.host import rates as host_rates
from tests.fuzz_commands import fuzz, signature, warm_up

INPUTS = 120


@pytest.mark.lab
def test_spoilt_files_and_odd_arguments_end_in_no_traceback(tmp_path, monkeypatch):
    for owner, name in ((typer.main, "get_command"), (host_rates, "rates_file")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # is put back afterwards
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["cstool"])
    outcomes = list(fuzz(warm_up(tmp_path), 7, range(INPUTS)))
    assert [(o.number, signature(o.finding)) for o in outcomes if o.finding is not None] == []
    assert [outcome.number for outcome in outcomes] == [*range(INPUTS)]
    # Many commands get through, and many refuse: the inputs are neither harmless nor hopeless.
    codes = [outcome.code for outcome in outcomes]
    assert 0.2 < codes.count(2) / INPUTS < 0.8
    assert 0.1 < codes.count(0) / INPUTS < 0.7
