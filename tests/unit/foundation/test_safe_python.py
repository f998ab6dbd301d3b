"""No process of Python takes modules from the working directory."""

import ast
import os
import sys
from pathlib import Path

import pytest

import cstool
from cstool.foundation.safe_python import python, this_program
from cstool.foundation.slurm import commands
from cstool.training.data.workers import do_each
from cstool.training.kernels.second_process import second_process

SHADOWED = ("mpi4py", "multiprocessing", "numba", "numpy", "signal", "threading", "cstool")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working directory with files that are called like modules; they leave a file `ran`."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.takes("two processes, which a library starts")
def test_processes_that_a_library_starts(folder, monkeypatch):
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    do_each(Path.touch, [folder / "0", folder / "1"], 2, lambda _: None)
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".py") == ["0", "1"]
    assert "PYTHONSAFEPATH" not in os.environ


@pytest.mark.takes("a process: how Python starts is what is tested")
def test_a_process_that_says_which_mpi_there_is(folder):
    found = commands.ask(python("-c", commands.LIBRARY))
    assert (found.returncode in (0, 1), (folder / "ran").exists()) == (True, False)


def test_the_process_that_compiles_too(folder, monkeypatch):
    started = []
    monkeypatch.setattr("subprocess.Popen", lambda command, **_: started.append(command[:3]) or pytest.fail.Exception)
    with pytest.raises(AttributeError), second_process(()):  # what is no process cannot be killed
        pass
    assert started == [[sys.executable, "-P", "-c"]]


def test_this_program_is_started_as_it_was(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cstool", "run", "--seed", "1"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "-m", "cstool", "run", "--seed", "1"])
    assert this_program() == [sys.executable, "-P", "-X", "dev", "-m", "cstool"]


def test_every_place_that_starts_python_does_so_safely():
    """`sys.executable` begins a command in two places: here, and for keepers, which take no modules but cstool's."""
    package, places = Path(cstool.__file__).parent, []
    for file in package.rglob("*.py"):
        if "sys.executable" in (text := file.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
                    places.append((file.relative_to(package).as_posix(), ast.unparse(node.elts[1])))
    assert sorted(places) == [("appliance/queue/attempt.py", "'-I'"), ("foundation/safe_python.py", "'-P'")]
