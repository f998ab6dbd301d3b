"""docs/extending.md: what it adds is added to a copy of the sources, and works there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "extending.md").read_text(encoding="utf-8")
PARTS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")[1:]}


def apply(diff: str, folder: Path) -> None:
    """Replace what a diff has before by what it has after; it stands in the file once. The last line may be cut off."""
    name, *lines = diff.splitlines()
    file = folder / name.removeprefix("--- ")
    before = "\n".join(line[1:] for line in lines if line[:1] in " -")
    after = "\n".join(line[1:] for line in lines if line[:1] in " +")
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{name}\n{before}"
    file.write_text(text.replace(before, after), encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> Path:
    """A copy of the sources with all that the page adds."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(PROJECT / "cstool", folder / "cstool", ignore=shutil.ignore_patterns("__pycache__"))
    for language, block in re.findall(r"```(diff|python)\n(.*?)```", PAGE, re.DOTALL):
        if language == "diff":
            apply(block, folder)
        elif block.startswith("# cstool/"):
            name, _, source = block.partition("\n")
            (folder / name.removeprefix("# ")).write_text(source, encoding="utf-8")
    return folder


@pytest.mark.parametrize("part", PARTS)
def test_what_is_added_works(part, extended):
    *_, attempt = re.findall(r"```python\n(.*?)```", PARTS[part], re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": str(extended), "PYTHONSAFEPATH": "1", "CSTOOL_CACHE_DIR": str(extended)}
    done = subprocess.run(
        [sys.executable, "-c", attempt], env=environment, cwd=extended, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
