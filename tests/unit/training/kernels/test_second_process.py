"""The second process that compiles kernels, as far as no kernel is compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cstool.training.kernels import second_process as module
from cstool.training.kernels._cache import cache_folder
from cstool.training.kernels.compile import all_kernels
from cstool.training.kernels.second_process import main, second_process
from tests.patience import wait_until


class _Process:
    """A process that counts how often it is killed, and waited for."""

    def __init__(self, begun: list["_Process"]) -> None:
        self.ends: list[str] = []
        begun.append(self)

    def kill(self) -> None:
        self.ends.append("killed")

    def wait(self) -> None:
        self.ends.append("waited for")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[_Process]:
    found: list[_Process] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: _Process(found))
    return found


def test_the_inner_one_of_two_contexts_ends_the_process_that_the_outer_one_began(begun: list[_Process]) -> None:
    with second_process(["a"]):
        with second_process(["a"]):
            assert [process.ends for process in begun] == [[]]
        assert [process.ends for process in begun] == [["killed", "waited for"]]
    assert [process.ends for process in begun] == [["killed", "waited for"]]


def test_it_ends_with_the_context_if_nothing_took_it_over(begun: list[_Process]) -> None:
    with second_process(["a"]):
        pass
    with second_process(["a"]):
        pass
    assert [process.ends for process in begun] == [["killed", "waited for"]] * 2


def test_the_program_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: 1)
    monkeypatch.setattr(module, "kernel_folder", lambda: pytest.fail("it is the other process"))
    main()


@pytest.mark.takes("a process, and another one that it leaves behind")
def test_the_process_that_the_program_leaves_behind_is_silent_and_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All kernels are there, by their marks."""
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path / "cache"))
    folder = cache_folder()
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "cache").chmod(0o700)
    for need in all_kernels():
        (folder / f"complete.{need.replace(' ', '.')}").touch()
    done = subprocess.run([sys.executable, "-m", module.__name__], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_until((folder / "ahead.lock").exists, "no process was left behind")
    assert not list(folder.glob("*.kernel"))
