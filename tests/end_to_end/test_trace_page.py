"""The page about traces shows what a run, and a look at its trace, print."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.pages import without_numbers

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "trace.md").read_text(encoding="utf-8")


def test_the_page_shows_what_it_prints(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["console", "", "python", ""]
    run, log, look, seen = (text for _, text in blocks)
    outcomes = [cstool(*shlex.split(line.removeprefix("$ cstool "))) for line in run.splitlines()]
    assert [outcome.code for outcome in outcomes] == [0, 0]
    assert log in outcomes[1].stdout
    looked = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    # Which of the lanes takes a sum, and which lane comes first, is another each time.
    assert {without_numbers(line) for line in looked.splitlines()} == {without_numbers(x) for x in seen.splitlines()}
