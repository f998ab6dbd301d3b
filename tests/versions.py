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
WITH = ("hypothesis", "pytest", "pytest-xdist", "tokenizers", "safetensors")


def oldest() -> list[str]:
    """Return the requirements of the project, each with the oldest version that it allows."""
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg", encoding="utf-8")
    lines = setup["options"]["install_requires"].strip().splitlines()
    return [re.sub(r"^([\w-]+)>=([\w.]+)", r"\1==\2", line) for line in lines]


def new_environment(folder: Path, *requirements: str | Path) -> Path:
    """Make a virtual environment with these packages alone, by the pip of this one; return its Python.

    Modules are compiled when they are imported: of most packages a test imports a few.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([*pip(python), "install", "--quiet", "--no-compile", *requirements], check=True)
    return python


def pip(python: Path) -> list[str | Path]:
    return [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--no-input"]


def main(arguments: Sequence[str]) -> int:
    """Make the environment, and run the tests in a copy of the project."""
    with tempfile.TemporaryDirectory(prefix="versions.") as folder:
        project = Path(folder, "project")
        copy_project(project)
        python = new_environment(Path(folder, "venv"), *oldest(), *WITH)
        subprocess.run([*pip(python), "install", "--quiet", "--no-deps", "--editable", project], check=True)
        listed = subprocess.run([*pip(python), "freeze"], check=True, capture_output=True, text=True)
        print("with", ", ".join(line for line in listed.stdout.split() if "==" in line), flush=True)
        tests = arguments[1:] if arguments[:1] == ["--"] else TESTS
        return subprocess.run([python, "-m", "pytest", *tests], cwd=project, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
