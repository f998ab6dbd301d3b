"""The page about checkpoints shows what the commands print."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.refusals import Outcome

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "checkpoint.md").read_text(encoding="utf-8")


def test_the_page_shows_what_it_prints(
    cstool: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to numbers and sizes, which are others on every machine; three dots stand for lines that are left out."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    Path("checkpoints/kept").mkdir(parents=True)
    runs, *consoles = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = re.findall(r"^\$ cstool (.*)\n", runs, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        assert cstool(*shlex.split(command)).code == 0
    verbs = []
    for console in consoles:
        for command, printed in re.findall(r"^\$ cstool (.*)\n((?:[^$].*\n|\n)*)", console, re.MULTILINE):
            outcome = cstool(*shlex.split(command))
            verbs.append(command.split()[1])
            differs = printed.endswith("Checkpoints differ.\n")
            assert (outcome.code, outcome.stderr) == (int(differs), "")
            begin, dots, end = printed.partition("...\n")
            lines, shown = outcome.stdout.splitlines(), begin.splitlines()
            if dots:
                lines = lines[: len(shown)] + lines[-len(end.splitlines()) :]
                shown += end.splitlines()
            assert [without_numbers(line) for line in lines] == [without_numbers(line) for line in shown]
    assert verbs == ["list", "info", "verify", "diff", "diff", "copy", "prune", "delete"]


def without_numbers(line: str) -> str:
    """Return a line without what is another on every machine: sizes, times, norms, widths, the folder of the runs."""
    line = re.sub(r"(/home/me|TMP)/", "", line)
    return re.sub(r" +", " ", re.sub(r"\d[\d.,e+:-]*( [KM]iB| B)?", "N", line))
