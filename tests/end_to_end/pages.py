"""What pages of the documentation show is what is printed, up to numbers."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.refusals import Outcome

PROJECT = Path(__file__).parents[2]


def page(name: str) -> str:
    """Text of the page of this name, in whichever folder of docs it is."""
    (path,) = (PROJECT / "docs").rglob(f"{name}.md")
    return path.read_text(encoding="utf-8")


def commands_of(text: str) -> list[str]:
    """Return what is typed after `$ cstool` in a text."""
    return re.findall(r"^\$ cstool (.*)$", text, re.MULTILINE)


def blocks(name: str, *kinds: str) -> list[str]:
    """Return what stands between fences on a page, after a check of which kinds they are, if these are given."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE)
    assert not kinds or tuple(kind or "text" for kind, _ in found) == kinds
    return [text for _, text in found]


def consoles(name: str) -> list[str]:
    """Return what stands in the blocks of commands on a page."""
    return re.findall(r"^```console\n(.*?)^```", page(name), re.DOTALL | re.MULTILINE)


def run_console(cstool: Callable[..., Outcome], console: str) -> list[Outcome]:
    """Run the commands of a block that shows nothing else."""
    outcomes = [cstool(*shlex.split(line.removeprefix("$ cstool "))) for line in console.splitlines()]
    assert [outcome.code for outcome in outcomes] == [0] * len(outcomes), outcomes[-1].stderr
    return outcomes


def typed(command: str, folder: Path = Path()) -> Outcome:
    """Type a command in a shell, in which `cstool` and `mpirun` are those beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PROJECT)}
    shell = ["bash", "-c", command]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def check_console(cstool: Callable[..., Outcome], console: str) -> list[str]:
    """Run the commands of a block, compare what they print, and return what follows `cstool` in each.

    Numbers and sizes are others on every machine; three dots stand for lines that are left out.
    """
    commands = []
    for command, printed in re.findall(r"^\$ cstool (.*)\n((?:[^$].*\n|\n)*)", console, re.MULTILINE):
        outcome = cstool(*shlex.split(command))
        commands.append(command)
        differs = printed.endswith("Checkpoints differ.\n")
        assert (outcome.code, outcome.stderr) == (int(differs), "")
        begin, dots, end = printed.partition("...\n")
        found, shown = (plain_lines(text) for text in (outcome.stdout, begin))
        if dots:
            found = found[: len(shown)] + found[len(found) - len(end.splitlines()) :]
            shown += plain_lines(end)
        assert found == shown, command
    return commands


def plain_lines(text: str) -> list[str]:
    """Return the lines of a text, of a log what was logged, without what is another on every machine."""
    return [without_numbers(line.rpartition("INFO:   ")[2]) for line in text.splitlines()]


def without_numbers(line: str) -> str:
    """Return a line without what is another on every machine: sizes, times, norms, widths, the folder of the runs."""
    line = re.sub(r"(/home/me|TMP)/", "", line)
    return re.sub(r" +", " ", re.sub(r"\d[\d.,e+:-]*( [kMG]?B)?", "N", line))
