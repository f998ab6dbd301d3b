"""Run the command line in this process."""

import sys
from collections.abc import Callable

import pytest

from cstool.cli import main
from tests.end_to_end.refusals import Outcome


@pytest.fixture
def cstool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run `cstool` with the given arguments, as on a screen of 100 columns that is not a terminal."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cstool", *arguments])
        code = main()
        return Outcome(code, *capsys.readouterr())

    return run
