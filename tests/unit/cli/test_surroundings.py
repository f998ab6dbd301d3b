"""What a process is given: streams that are closed, and little memory."""

import os
import resource
import subprocess
import sys
import threading

import pytest

from cstool.foundation.terminal import surroundings
from cstool.foundation.terminal.screen import TextOutput
from cstool.foundation.terminal.surroundings import harmless_streams, lack_of_room, raw_stream
from tests.end_to_end.refusals import Outcome, error

PYTHON = f"{sys.executable} -m cstool"


def in_a_shell(command: str) -> Outcome:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    return Outcome(done.returncode, done.stdout, done.stderr)


FULL = error("a file or the output cannot be written: No space left on device")
UNKNOWN = error("nope: is not a known system", "known are cs1, cs2, cs3, and paths of YAML files")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("system list >&-", (0, "", "")),
        ("system show nope <&- >&-", (2, "", UNKNOWN)),
        ("system show nope 2>&-", (2, "", "")),
        ("system show nope 2>/dev/full", (2, "", "")),
        ("system list >/dev/full", (2, "", FULL)),
        ("--version >/dev/full", (2, "", FULL)),
    ],
)
def test_streams_that_are_closed_or_full_end_in_no_traceback(command, expected):
    assert in_a_shell(f"{PYTHON} {command}") == expected


def test_where_a_message_cannot_be_written_the_exit_code_is_that_of_the_command(tmp_path):
    """Python has another one where it cannot write at its end, too; of a file it does so, unlike of a device."""
    command = f"unset PYTHONUNBUFFERED; ulimit -f 0; {PYTHON} system show nope 2>>{tmp_path / 'err'}"
    assert in_a_shell(command) == (2, "", "")


def test_a_reader_that_leaves_while_sigpipe_is_ignored_has_what_it_wanted():
    command = f"trap '' PIPE; set -o pipefail; {PYTHON} config keys | head -1"
    assert in_a_shell(command) == (0, "# The keys of a params file\n", "")


def test_a_closed_stream_is_not_taken_by_the_next_file(tmp_path):
    script = "import os; from cstool.foundation.terminal.surroundings import open_streams; " \
        "open_streams(); print('lost'); " \
        f"os.write(os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY), b'kept')"  # fmt: skip
    subprocess.run(["bash", "-c", f'{sys.executable} -c "$1" <&- >&-', "-", script], check=True)
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_too_small_an_address_space_ends_a_run_at_once(tmp_path):
    command = f"ulimit -v 450000; {PYTHON} run -p nothing.yaml"
    need = (surroundings.KERNELS_BYTES + surroundings.THREAD_BYTES * os.cpu_count()) // 1024
    assert in_a_shell(command) == (2, "", error(
        f"the address space of this process is limited to 450,000 kB, and cstool run must have {need:,}",
        "ulimit -v unlimited lifts the limit of a shell; memory alone is limited by a control group",
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("command", "is_enough"),
    [("system list", True), ("estimate -p a.yaml", True), ("run", False), ("estimate --system host", False)],
)
def test_how_much_address_space_must_be_there_follows_from_the_command(monkeypatch, command, is_enough):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (surroundings.LEAST_BYTES, -1))
    assert (lack_of_room(command.split()) is None) is is_enough


@pytest.mark.parametrize(
    ("flags", "threads"),
    [("--lanes 64", 64), ("--lanes=64", 64), ("--lanes 1", 1), ("--lanes", 1), ("--lanes x", 1), ("--lanes ²", 1)],
)
def test_every_lane_needs_address_space(monkeypatch, flags, threads):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    need = surroundings.KERNELS_BYTES + surroundings.THREAD_BYTES * threads
    for limit, is_enough in ((need, True), (need - 1, False)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, limit=limit: (limit, -1))
        assert (lack_of_room(["run", "-p", "a.yaml", *flags.split()]) is None) is is_enough


def test_threads_that_cannot_be_started_are_one_error(cstool, monkeypatch, tmp_path):
    (tmp_path / "a").write_text("abc")

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    source, output = str(tmp_path), f"{tmp_path}_out"
    outcome = cstool("data", "prepare", "text", source, "--output", output, "--sequence_length", "2")
    assert outcome == (2, "", error(
        "the system must let this process start another thread, it refuses",
        "fewer --lanes or --processes need fewer; ulimit -u and ulimit -v say what is allowed",
    ))  # fmt: skip


def test_control_characters_are_shown_and_line_ends_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    with harmless_streams():
        print("a\x1b[31m\n\tb")
        print("c\u202e", file=sys.stderr)
    print("\x1b after")
    assert capsys.readouterr() == ("a\\x1b[31m\n\tb\n\x1b after\n", "c\\u202e\n")
    with harmless_streams():  # text that a model wrote goes through a pipe as it is
        TextOutput().write("a\x1b\u202e\r\n")
    assert capsys.readouterr().out == "a\x1b\u202e\r\n"


def test_a_raw_stream_is_the_stream_behind() -> None:
    before = sys.stdout
    with harmless_streams():
        assert (raw_stream(sys.stdout), sys.stdout is before) == (before, False)
    assert (raw_stream(sys.stdout), sys.stdout) == (before, before)
