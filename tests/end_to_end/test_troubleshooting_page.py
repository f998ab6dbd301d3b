"""Every message on the page about trouble is what the command above it prints."""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.end_to_end.pages import without_numbers
from tests.end_to_end.worked import PROJECT, save_checkpoints, write_data, write_params
from tests.patience import wait_until

PAGE = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^### ([^\n]*)\n\n```console\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
LABELS = ("error: ", "interrupted: ", "hint: ")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """The folder that the page is about, of fewer books, and what calls this program there."""
    folder = tmp_path_factory.mktemp("trouble")
    write_params(folder)
    write_data(folder)
    save_checkpoints(folder / "params" / "gpt_tiny.yaml", folder / "checkpoints" / "gpt_tiny", (400, 600))
    program = folder / "bin" / "cstool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cstool "$@"\n')
    program.chmod(0o755)
    return folder


def interrupt_after(path: Path) -> threading.Thread:
    """Press Ctrl-C as soon as a file is there."""

    def press() -> None:
        wait_until(path.exists, f"no {path}")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def without_facts(line: str) -> str:
    """Return a line without numbers and digests."""
    return without_numbers(re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", line))


def is_long(console: str) -> bool:
    """Whether a run is stopped, or commands are those of a shell, which the lab types."""
    commands = re.findall(r"^\$ (.*)$", console, re.MULTILINE)
    return "^C" in console or not all(command.startswith("cstool") and ">" not in command for command in commands)


@pytest.mark.parametrize(
    "heading",
    [pytest.param(each, marks=pytest.mark.lab if is_long(console) else ()) for each, console in ENTRIES.items()],
)
def test_a_message_is_what_the_command_above_it_prints(prepared, tmp_path, monkeypatch, heading, cstool):
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    # `mpirun` is that beside this Python.
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path}
    console = ENTRIES[heading]
    assert any(line.startswith(LABELS) for line in console.splitlines())
    for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", console, re.MULTILINE):
        if command.startswith("cstool") and ">" not in command:
            presses = expected.startswith("^C\n")
            thread = interrupt_after(Path("checkpoints/gpt_tiny/checkpoint_601.mdl")) if presses else None
            code, _, stderr = cstool(*shlex.split(command)[1:])
            if thread is not None:
                thread.join()
            # The loss that is no number is the one answer of no; all else is something to fix.
            assert code == (130 if presses else 1 if "not finite" in expected else 2)
        else:
            done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == (2 if expected else 0)
            stderr = done.stderr
        stderr = stderr.replace("TMP/work/", "").replace("TMP/", "/home/me/")
        stderr = stderr.replace(f" on {socket.gethostname()}: ", " on alpha: ").replace(str(folder), "/home/me")
        printed = [line for line in stderr.splitlines() if line.startswith(LABELS)]
        shown = expected.removeprefix("^C\n").splitlines()
        assert [without_facts(line) for line in printed] == [without_facts(line) for line in shown]
    shutil.rmtree(folder)


def test_no_message_stands_where_no_test_sees_it():
    assert len(re.findall(r"^```console", PAGE, re.MULTILINE)) == len(ENTRIES) >= 30
    messages = [line for line in PAGE.splitlines() if line.startswith(LABELS)]
    assert messages == [
        line for console in ENTRIES.values() for line in console.splitlines() if line.startswith(LABELS)
    ]
