"""The page about checkpoints shows what the commands print."""

import re
import shlex
import shutil
from pathlib import Path

from tests.end_to_end.pages import check_console

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "checkpoint.md").read_text(encoding="utf-8")


def test_the_page_shows_what_it_prints(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    Path("checkpoints/kept").mkdir(parents=True)
    runs, *consoles = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = re.findall(r"^\$ cstool (.*)\n", runs, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        assert cstool(*shlex.split(command)).code == 0
    shown = [command for console in consoles for command in check_console(cstool, console)]
    verbs = [command.split()[1] for command in shown]
    assert verbs == ["list", "info", "verify", "diff", "diff", "copy", "prune", "delete"]
