"""docs/extending.md: what it adds is added to a copy of the sources, and works there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "extending.md").read_text(encoding="utf-8")
ATTEMPTS = "import sys\nfor attempt in sys.argv[1:]: exec(attempt, {})"
"""the last script of each part, by itself, but in one process: kernels are compiled once"""


def apply(diff: str, folder: Path) -> None:
    """Replace what a diff has before by what it has after; it stands in the file once. The last line may be cut off."""
    name, *lines = diff.splitlines()
    file = folder / name.removeprefix("--- ")
    before = "\n".join(line[1:] for line in lines if line[:1] in " -")
    after = "\n".join(line[1:] for line in lines if line[:1] in " +")
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{name}\n{before}"
    file.write_text(text.replace(before, after), encoding="utf-8")


def test_what_is_added_works(tmp_path):
    shutil.copytree(PROJECT / "cstool", tmp_path / "cstool", ignore=shutil.ignore_patterns("__pycache__"))
    attempts = []
    for part in PAGE.split("\n## ")[1:]:
        blocks = re.findall(r"```(diff|python)\n(.*?)```", part, re.DOTALL)
        for language, block in blocks:
            if language == "diff":
                apply(block, tmp_path)
            elif block.startswith("# cstool/"):
                name, _, source = block.partition("\n")
                (tmp_path / name.removeprefix("# ")).write_text(source, encoding="utf-8")
        attempts.append([block for language, block in blocks if language == "python"][-1])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1", "CSTOOL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ATTEMPTS, *attempts], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert (len(attempts), done.returncode, done.stderr) == (6, 0, "")
