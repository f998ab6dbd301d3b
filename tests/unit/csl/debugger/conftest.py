"""Recorded runs of the tutorial's program: one that hangs, one with a wrong value."""

import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from cstool.csl.debugger.terminal import debug_recorded
from cstool.csl.fabric.program import FabricProgram
from cstool.csl.sdk import client
from cstool.csl.sdk.artifact import read_program
from cstool.csl.sdk.cslc import main as cslc
from cstool.csl.sdk.journal import Journal, simulations
from cstool.csl.sdk.variables import JOURNAL_VARIABLE
from tests.end_to_end.pages import page
from tests.end_to_end.tutorials import blocks_of, write_block
from tests.unit.csl.sdk.conftest import ForkedSimulator, forked

NAMES = ("hang", "wrong")


class Recorded(NamedTuple):
    """A recorded run.

    Args:
        folder: of its simulation in the journal
        directory: that the script ran in
    """

    folder: Path
    directory: Path

    @property
    def journal(self) -> Journal:
        return Journal(self.folder)

    @property
    def program(self) -> FabricProgram:
        return read_program(self.journal.program)

    def debug(self, *commands: str) -> str:
        """What the debugger prints for these commands."""
        said: list[str] = []
        debug_recorded(self.folder, commands, said.append)
        return "".join(f"{line}\n" for line in said)


def record(directory: Path, journal: Path) -> Recorded:
    """Compile and run the program of a directory as its script does, in forked processes, and record it."""
    journal.mkdir()
    compiling = shlex.split((directory / "commands_wse2.sh").read_text().splitlines()[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setenv(JOURNAL_VARIABLE, str(journal))
        assert cslc(compiling[1:]) == 0
        found = {"Popen": ForkedSimulator, "TimeoutExpired": subprocess.TimeoutExpired, "DEVNULL": subprocess.DEVNULL}
        patch.setattr(client, "subprocess", SimpleNamespace(**found))
        forked("run.py")
    (folder,) = simulations(journal)
    return Recorded(folder, directory)


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Recorded]:
    """The program as the tutorial has it first ("hang"), and with its first mistake mended ("wrong")."""
    folder = tmp_path_factory.mktemp("debugged")
    (folder / "chain").mkdir()
    found = {}
    for name, is_change, kind, body in blocks_of(page("debugger").partition("## Tutorial\n")[2]):
        if name.startswith("chain/"):
            write_block(folder, name, is_change, body)
        elif kind == "console" and len(found) < len(NAMES):
            run = NAMES[len(found)]
            shutil.copytree(folder / "chain", folder / run)
            found[run] = record(folder / run, folder / f"journal_{run}")
    return found


@pytest.fixture
def hang(runs) -> Recorded:
    return runs["hang"]


@pytest.fixture
def wrong(runs) -> Recorded:
    return runs["wrong"]
