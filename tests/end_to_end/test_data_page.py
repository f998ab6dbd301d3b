"""The page about data shows what the commands print, and names the flags that there are."""

import os
import re
import shutil
from pathlib import Path

from tests.end_to_end.pages import check_console

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "data.md").read_text(encoding="utf-8")


def test_the_page_shows_what_is_printed(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROJECT / "LICENSE", "LICENSE")
    *fine, damaged, digits = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    shown = [command for console in fine for command in check_console(cstool, console)]
    os.truncate("datasets/license/val/data_00000.h5", 12_000)
    outcome = cstool("data", "check", "datasets/license")
    assert (outcome.code, f"$ cstool data check datasets/license\n{outcome.stdout}") == (1, damaged)
    shown += check_console(cstool, digits)
    verbs = [re.split(r" (?=\S*[/A-Z-])", command)[0] for command in shown]
    assert verbs == ["data prepare text"] * 2 + ["data info", "data check", "data prepare digits", "data info"]


def test_the_digits_are_learnt_as_the_page_says(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    command = re.search(r"`cstool (run --params params/fc_mnist.yaml [^`]*)` then gets ([\d.]+) %", PAGE)
    assert command is not None
    assert cstool("data", "prepare", "digits", "--output", "datasets/mnist").code == 0
    outcome = cstool(*command[1].split())
    [accuracy] = re.findall(r"eval/accuracy = ([\d.]+)", outcome.stdout + outcome.stderr)[-1:]
    assert abs(100 * float(accuracy) - float(command[2])) < 1


def test_every_flag_of_text_is_explained(cstool):
    listed = set(re.findall(r"^  (--\w+)", cstool("data", "prepare", "text", "--help").stdout, re.MULTILINE))
    assert {flag for flag in listed if flag not in PAGE} == {"--debug", "--seed"}
