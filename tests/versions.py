"""Run part of the tests with the oldest versions of what setup.cfg asks for; `make install` takes the newest.

    python -m tests.versions
    python -m tests.versions -- tests/unit/training/store

A virtual environment is made in a temporary folder for it. What follows `--` goes to pytest in place of `TESTS`.
"""

import configparser
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.any_machine import copy_project

PROJECT = Path(__file__).parents[1]
TESTS = (
    *(
        "tests/unit/model/params",
        "tests/unit/model/ir",
        "tests/unit/training/kernels",
        "tests/unit/training/machine",
        "tests/unit/training/store",
    ),
    *("tests/unit/plan/pictures", "tests/unit/cli", "-m", "not lab and not golden", "-n", "2", "--dist", "worksteal"),
)
"""golden texts are left out: another typer or matplotlib words and draws some things otherwise"""
WITH = ("hypothesis", "pytest", "pytest-xdist", "tokenizers", "safetensors", "onednn-cpu-gomp==2023.2.0")


def oldest() -> list[str]:
    """Return the requirements of the project, each with the oldest version that it allows."""
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg", encoding="utf-8")
    lines = setup["options"]["install_requires"].strip().splitlines()
    return [re.sub(r"^([\w-]+)>=([\w.]+)", r"\1==\2", line) for line in lines]


def main(arguments: Sequence[str]) -> int:
    """Make the environment, and run the tests in a copy of the project."""
    with tempfile.TemporaryDirectory(prefix="versions.") as folder:
        project, python = Path(folder, "project"), Path(folder, "venv", "bin", "python")
        copy_project(project)
        subprocess.run([sys.executable, "-m", "venv", Path(folder, "venv")], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        subprocess.run([*pip, *oldest(), *WITH], check=True)
        subprocess.run([*pip, "--no-deps", "--editable", project], check=True)
        listed = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True)
        print("with", ", ".join(line for line in listed.stdout.split() if "==" in line), flush=True)
        tests = arguments[1:] if arguments[:1] == ["--"] else TESTS
        return subprocess.run([python, "-m", "pytest", *tests], cwd=project, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
