"""Fixtures for the host's side: simulators and scripts in processes forked from this one, which cost little."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cstool.csl.sdk import client, cs_python, simulator
from cstool.csl.sdk.runtime import SdkRuntime


def fork(act: Callable[[], int | None], kept: Sequence[int] = ()) -> int:
    """The number of a process that does this; of all open files it has the standard streams and those `kept`."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # else both write what is in its buffer
    process = os.fork()
    if process:
        return process
    code: int | None = 1
    try:
        for number in {*range(3, 256)} - {*kept}:
            with contextlib.suppress(OSError):
                os.close(number)
        sys.stdin, sys.stdout, sys.stderr = (open(each, mode, closefd=False) for each, mode in enumerate("rww"))  # noqa: SIM115
        code = act()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code or 0)


def forked(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Exit code, output and errors of `cs_python` with these arguments."""
    Path("stdin").write_text(stdin)

    def act() -> int:
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for number, (name, flags) in enumerate({"stdin": os.O_RDONLY, "stdout": new, "stderr": new}.items()):
            os.dup2(os.open(name, flags), number)
        return cs_python.main(arguments)

    code = os.waitstatus_to_exitcode(os.waitpid(fork(act), 0)[1])
    return code, Path("stdout").read_text(), Path("stderr").read_text()


class ForkedSimulator:
    """What `subprocess.Popen` is to the client: a process of the command line of a simulator."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], **_: Any) -> None:
        self.pid = fork(lambda: simulator.main([*command[-2:]]), pass_fds)
        self._ends = os.pidfd_open(self.pid)
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended."""
        if self._code is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("simulator", timeout or 0)
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ends)
        return self._code

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def forks() -> Iterator[None]:
    """Have each simulator forked."""
    with pytest.MonkeyPatch.context() as patch:
        found = {"Popen": ForkedSimulator, "TimeoutExpired": subprocess.TimeoutExpired, "DEVNULL": subprocess.DEVNULL}
        patch.setattr(client, "subprocess", SimpleNamespace(**found))
        yield


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: None) -> Iterator[Callable[..., SdkRuntime]]:
    """Run compiled programs, in a directory of its own; their simulators end with the test."""
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as ends:

        def begin(*arguments: Any, **options: Any) -> SdkRuntime:
            runtime = SdkRuntime(*arguments, **options)
            runtime.load()
            runtime.run()
            ends.callback(runtime._simulator.close)
            return runtime

        yield begin
