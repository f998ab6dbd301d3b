"""What pages of the documentation show is what is printed, up to numbers."""

import re
import shlex
from collections.abc import Callable

from tests.end_to_end.refusals import Outcome


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
        lines, shown = outcome.stdout.splitlines(), begin.splitlines()
        if dots:
            lines = lines[: len(shown)] + lines[-len(end.splitlines()) :]
            shown += end.splitlines()
        found, expected = ([without_numbers(line) for line in text] for text in (lines, shown))
        assert found == expected, command
    return commands


def without_numbers(line: str) -> str:
    """Return a line without what is another on every machine: sizes, times, norms, widths, the folder of the runs."""
    line = re.sub(r"(/home/me|TMP)/", "", line)
    return re.sub(r" +", " ", re.sub(r"\d[\d.,e+:-]*( [kMG]?B)?", "N", line))
