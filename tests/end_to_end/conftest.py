"""Fixtures of the tests that type commands."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cstool.cli import main
from tests.end_to_end.refusals import Outcome
from tests.end_to_end.runs import write_text


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 60 samples."""
    return write_text(tmp_path_factory.mktemp("text") / "train", 60)


@pytest.fixture
def cstool(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, data: Path
) -> Callable[..., Outcome]:
    """Run `cstool` in this process; in what it prints, TMP and DATA stand for the two folders."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cstool", *map(str, arguments)])
        code = main()
        stdout, stderr = (t.replace(str(data), "DATA").replace(str(tmp_path), "TMP") for t in capsys.readouterr())
        return Outcome(code, stdout, stderr)

    return run
