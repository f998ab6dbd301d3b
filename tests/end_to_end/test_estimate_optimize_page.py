"""The page on searches shows what the command prints, and what it refuses."""

import re
import shlex
import shutil
import time
from pathlib import Path

import pytest

from tests.end_to_end.pages import PROJECT, blocks, check_console, without_numbers


@pytest.fixture(autouse=True)
def _in_a_folder_with_params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(PROJECT / "params", "params")


def test_answers(cstool):
    first, within_power, several, _ = blocks("estimate_optimize", "console", "console", "console", "text")
    began = time.monotonic()
    check_console(cstool, first)
    # What a planner waits for at most; it takes a second or two.
    assert time.monotonic() - began < 10
    check_console(cstool, within_power)
    check_console(cstool, several)
    assert Path("front.png").stat().st_size > 10_000


def test_refusals(cstool):
    *_, refused = blocks("estimate_optimize")
    shown = re.findall(r"^\$ cstool (.*)\n((?:[^$].*\n)+)", refused, re.MULTILINE)
    assert len(shown) == 2
    for command, message in shown:
        outcome = cstool(*shlex.split(command))
        assert (outcome.code, outcome.stdout) == (2, "")
        assert without_numbers(outcome.stderr) == without_numbers(message)
