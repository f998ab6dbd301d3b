"""Scripts for a cluster on this machine: what they are refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cstool.csl.fabric.program import FabricProgram
from cstool.csl.sdk.appliance import ClientRuntime, SdkCompiler, SdkLauncher
from cstool.csl.sdk.artifact import write_program
from cstool.csl.sdk.checks import whole_numbers
from tests.unit.csl.sdk.sdk_programs import arrays_program, message


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A compiled program, beside the directory that the script runs in."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    made: FabricProgram = arrays_program()
    write_program(made, tmp_path / "out")
    return str(tmp_path / "out")


def launcher(program: str) -> SdkLauncher:
    return SdkLauncher(program, simulator=True)


def test_a_wafer_is_refused(program: str) -> None:
    for kind in (SdkLauncher, ClientRuntime):
        refused = "simulator: must be True, programs are simulated here\nhint: simulator=True"
        assert message(lambda kind=kind: kind(program)) == refused


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda program: launcher(program).run("true"), "SdkLauncher: must be used in a with statement"),
        (lambda _: launcher("nothing"), "nothing: must be the directory of a compiled program"),
        (
            lambda _: SdkCompiler().compile("nowhere", "layout.csl", "", "."),
            "compile: nowhere must be a directory, got: No such file or directory",
        ),
        (lambda _: SdkCompiler().compile(".", "layout.csl", "-o a", "."), "compile: cslc ended with exit code 1"),
        (
            lambda _: whole_numbers("memcpy_h2d", 0, 2.0),
            "memcpy_h2d: columns, rows, counts and ids must be whole numbers, got (0, 2.0)",
        ),
    ],
)
def test_what_is_refused(program: str, act: Callable[[str], object], expected: str) -> None:
    Path("layout.csl").write_text("layout {")
    assert message(lambda: act(program)) == expected


def test_commands_run_beside_the_program_until_one_fails(program: str) -> None:
    Path("tool").mkdir()
    Path("tool/data.txt").write_text("data\n")
    Path("one.txt").write_text("one\n")
    with launcher(program) as running:
        running.stage("tool")
        running.stage("one.txt")
        said = running.run("cat one.txt tool/data.txt; ls -d out", "cs_python --version; echo [%CMADDR%] > made")
        assert said.startswith("one\ndata\nout\ncs_python of cstool ")
        running.download_artifact("made", "kept/made.txt")
        running.download_artifact("made", ".")
        failed = "run: exit code 3 of: exit 3\n\nbefore\n"
        assert message(lambda: running.run("echo before", "exit 3", "echo after")) == failed
        assert message(lambda: running.stage("nothing")) == "stage: nothing must be there, it is not"
        assert message(lambda: running.download_artifact("nothing", ".")) == (
            "download_artifact: nothing must be a file that a command wrote, it is not there"
        )
    assert Path("kept/made.txt").read_text() == Path("made").read_text() == "[]\n"
