"""The page about estimates shows what the commands print, and its table of errors is the model's."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "estimate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


@pytest.mark.usefixtures("predicted_once")
def test_the_commands_run_as_they_are_written(cstool):
    commands = [line.removeprefix("$ cstool ") for line in BLOCKS[0][1].splitlines()]
    assert len(commands) == 4
    for command in commands:
        outcome = cstool(*shlex.split(command))
        assert (outcome.code, outcome.stderr) == (0, "")
    assert Path("estimate.png").stat().st_size > 10_000
    assert Path("step.json").stat().st_size > 10_000


def test_a_report_is_what_is_printed(cstool):
    command, _, printed = BLOCKS[1][1].partition("\n")
    assert cstool(*shlex.split(command.removeprefix("$ cstool "))).stdout == printed


@pytest.mark.usefixtures("predicted_once")
def test_the_table_of_errors_is_what_validate_prints(cstool):
    (table,) = (text for kind, text in BLOCKS if text.startswith("Published results"))
    assert cstool("estimate", "--validate").stdout.startswith(table)


def test_results_that_the_text_names_are_in_the_table():
    (table,) = (text for kind, text in BLOCKS if text.startswith("Published results"))
    names = set(re.findall(r"`(\w+_(?:cs2|cs3|forward|120t)\w*)`", PAGE))
    assert names == {"llama_7b_cs2", "gpt3_111m_cs3_forward", "parameters_120t"}
    assert all(name in table for name in names)
