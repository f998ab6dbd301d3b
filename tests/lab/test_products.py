"""Products stand by themselves: programs in CSL run where the foundation and `cstool.csl` alone are installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cstool
from tests.versions import new_environment

PROJECT = Path(__file__).parents[2]
SETUP = f"""\
[metadata]
name = cstool-csl
version = {cstool.__version__}

[options]
packages = find_namespace:
python_requires = >=3.11
install_requires =
    numpy>=2.0

[options.packages.find]
include = cstool*

[options.package_data]
* = *.csl

[options.entry_points]
console_scripts =
    cs_python = cstool.csl.sdk.cs_python:main
    cslc = cstool.csl.sdk.cslc:main
"""
ABSENT = ("numba", "h5py", "matplotlib", "pydantic", "yaml", "typer")
"""what the whole of cstool needs, and a program in CSL does not"""


def _run(*words, **more):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.takes("builds a wheel, and installs it into an environment of its own")
def test_a_wheel_of_the_foundation_and_csl_runs_an_example(tmp_path):
    sources = tmp_path / "sources"
    for name in ("foundation", "csl"):
        shutil.copytree(PROJECT / "cstool" / name, sources / "cstool" / name)
    shutil.copy(PROJECT / "cstool" / "__init__.py", sources / "cstool")
    shutil.copy(PROJECT / "pyproject.toml", sources)
    (sources / "setup.cfg").write_text(SETUP)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    _run(sys.executable, "-m", "pip", "wheel", *quiet, "--no-deps", "--wheel-dir", tmp_path, sources)
    python = new_environment(tmp_path / "venv", next(tmp_path.glob("*.whl")))
    there = f"import importlib.util as u; print([name for name in {ABSENT} if u.find_spec(name)])"
    assert _run(python, "-c", there) == "[]\n"
    shutil.copytree(PROJECT / "examples" / "csl", tmp_path / "csl")
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    said = _run("bash", "commands_wse3.sh", cwd=tmp_path / "csl" / "row_reduce", env=environment)
    assert said.splitlines()[-1] == "SUCCESS"
