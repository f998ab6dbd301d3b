"""The page about MemoryX in a file shows what a run, a look at its file, and the commands print."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.pages import check_console, without_numbers

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "memoryx.md").read_text(encoding="utf-8")


def test_the_page_shows_what_it_prints(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["console", "", "python", "", "console"]
    run, log, look, seen, console = (text for _, text in blocks)
    outcomes = [cstool(*shlex.split(line.removeprefix("$ cstool "))) for line in run.splitlines()]
    assert [outcome.code for outcome in outcomes] == [0, 0]
    printed = {without_numbers(line.partition("INFO:   ")[2]) for line in outcomes[1].stdout.splitlines()}
    assert printed >= {without_numbers(line) for line in log.splitlines()}
    looked = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert [without_hex(line) for line in looked.splitlines()] == [without_hex(line) for line in seen.splitlines()]
    verbs = [command.split()[1] for command in check_console(cstool, console)]
    assert verbs == ["list", "info", "verify", "diff", "copy"]


def without_hex(line: str) -> str:
    return without_numbers(re.sub(r"CRC-32 [0-9a-f]{8}", "CRC-32 N", line))
