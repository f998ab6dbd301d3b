"""A guard starts supervisors again, but not those that ended by themselves; what a supervisor says stays short."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cstool.appliance.queue import guard
from cstool.appliance.queue.guard import GUARD_LOCK, HELD, main
from cstool.appliance.queue.holders import holder_of
from cstool.appliance.queue.supervisor_log import SupervisorLog
from cstool.foundation.atomic_file import lock_file
from tests.patience import PATIENCE_S, wait_until
from tests.unit.appliance.queue.queues import refusal


def guard_of(folder: Path, script: str) -> guard._Guard:
    """A guard whose supervisors are scripts that find a file `runs`, with a line for each that ran before."""
    before = f"runs = open({str(folder / 'runs')!r}, 'a+'); runs.seek(0); n = len(runs.readlines())\n"
    before += "runs.write('.\\n'); runs.close()\nimport os, sys, signal\n"
    return guard._Guard(folder, [sys.executable, "-I", "-S", "-c", before + script])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(guard, "BACK_OFF_S", (0.01, 0.04))


def lines(folder: Path) -> list[str]:
    text = (folder / "supervisor.log").read_text()
    return [line.partition(": ")[2] for line in text.splitlines()]


def test_killed_or_crashed_it_is_started_again_until_it_ends_by_itself(tmp_path):
    found = guard_of(tmp_path, "n < 2 and os.kill(os.getpid(), 9)\nsys.exit(7 if n < 4 else 0)")
    assert found.run() == 0
    assert lines(tmp_path) == [
        "guard: the supervisor died of signal 9; another one starts in 0.01 s",
        "guard: the supervisor died of signal 9; another one starts in 0.02 s",
        "guard: the supervisor ended with exit code 7; another one starts in 0.04 s",  # twice, said once
    ]


def test_what_was_well_for_long_is_started_again_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "HEALTHY_S", 0.0)
    assert guard_of(tmp_path, "sys.exit(7 if n < 3 else 0)").run() == 0
    said = "guard: the supervisor ended with exit code 7; another one starts in 0.01 s"
    assert lines(tmp_path) == [said]  # and again, which it need not say


def test_what_is_refused_is_not_tried_again(tmp_path):
    assert guard_of(tmp_path, "print('error: no'); sys.exit(2)").run() == 2
    assert (tmp_path / "supervisor.log").read_text() == "error: no\n"


def test_a_supervisor_that_cannot_be_started_is_tried_again(tmp_path, monkeypatch):
    found = guard._Guard(tmp_path, [str(tmp_path / "python")])
    tries = []

    def sleep(seconds: float) -> None:
        tries.append(seconds)
        if len(tries) == 2:
            (tmp_path / "python").symlink_to("/bin/true")
        assert len(tries) <= 2

    monkeypatch.setattr(found, "_sleep", sleep)
    assert found.run() == 0
    assert lines(tmp_path) == [
        "guard: the supervisor cannot be started: No such file or directory; tried again in 0.01 s",
        "guard: the supervisor cannot be started: No such file or directory; tried again in 0.02 s",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.lab)])
def test_a_signal_to_the_guard_ends_both(tmp_path, number):
    program = "import sys, cstool.appliance.queue.guard as guard\nguard.sys.executable = sys.argv[1]\n"
    program += "sys.exit(guard.main([sys.argv[2]]))"
    fake = tmp_path / "python"
    script = ["#!/bin/sh", f"trap 'echo ended >> {tmp_path}/said; exit 0' TERM", f"echo $$ > {tmp_path}/pid"]
    fake.write_text("\n".join([*script, "while :; do sleep 0.01; done\n"]))
    fake.chmod(0o755)
    process = subprocess.Popen([sys.executable, "-c", program, str(fake), str(tmp_path)], start_new_session=True)
    try:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", "it does not start")
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert (tmp_path / "said").read_text() == "ended\n"


def test_there_is_one_guard(tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.appliance.queue.holders.LOOKED_AT_S", 0.0)
    held = lock_file(tmp_path / GUARD_LOCK)
    assert main([str(tmp_path)]) == HELD
    os.close(held)


def test_a_guard_of_no_folder_says_so(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    said = f"error: {tmp_path}/none/guard.lock: cannot be made, got: No such file or directory\n"
    assert capsys.readouterr().err == said


def test_a_guard_is_light():
    code = "import cstool.appliance.queue.guard, sys\n"
    code += "print({'numpy', 'sqlite3', 'yaml', 'typer', 'asyncio'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_log_stays_within_its_limit_and_keeps_what_came_last(tmp_path):
    log = SupervisorLog(tmp_path, limit_bytes=1000)
    for number in range(100):
        log.say(f"line {number}")
    aside, now = (tmp_path / "supervisor.log.1").read_text(), (tmp_path / "supervisor.log").read_text()
    assert len(aside) <= 1000
    assert len(now) <= 1100
    numbers = [int(line.rpartition(" ")[2]) for line in (aside + now).splitlines()]
    assert numbers[1:] == [*range(numbers[1], 100)]


def test_a_log_says_no_line_twice_no_line_ends_within_one_and_none_is_a_reason_to_stop(tmp_path):
    log = SupervisorLog(tmp_path)
    for text in ("a", "a", "b\nc", "a"):
        log.say(text)
    assert lines(tmp_path) == ["a", "b\\nc", "a"]
    (tmp_path / "supervisor.log").unlink()
    (tmp_path / "supervisor.log").symlink_to(tmp_path / "elsewhere")
    for folder in (tmp_path, tmp_path / "none"):
        SupervisorLog(folder).say("a")
    assert not (tmp_path / "elsewhere").exists()


def test_who_holds_a_lock(tmp_path):
    path = tmp_path / "lock"
    assert holder_of(path) is None
    path.touch()
    assert holder_of(path) is None
    held = lock_file(path)
    found = holder_of(path)
    assert found is not None
    assert (found.pid, found.text) == (os.getpid(), path.read_text().strip())
    # What the file says is not to be trusted: a process that does not have it open does not hold it.
    host = os.uname().nodename
    for text in ("process 1 on elsewhere since now", f"process 999999 on {host} since now", "", "\0"):
        path.write_text(text)
        found = holder_of(path)
        assert found is not None
        assert found.pid is None
    os.close(held)
    assert holder_of(path) is None
    path.unlink()
    path.symlink_to(tmp_path / "other")
    assert refusal(holder_of, path) == f"{path}: cannot be read, got: Too many levels of symbolic links"
