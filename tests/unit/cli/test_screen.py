"""Log lines and progress on a terminal and elsewhere."""

import io
import logging
import re
import sys

import pytest

from cstool.cli.screen import bars_in_bytes, screen_on
from cstool.verbs.screen import told_in_bytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")


def log_and_work(stream: io.StringIO) -> str:
    """Return what a log line and a task with a detail leave on a stream."""
    with screen_on(stream) as screen:
        screen.progress.start("Training", 10)
        screen.progress.advance("Training", 4, "loss 2.123")
        screen.handler.emit(logging.LogRecord("cstool", logging.INFO, "", 0, "Loss=[2.1] :smile:", (), None))
        screen.progress.finish("Training")
    return stream.getvalue()


def test_only_a_terminal_that_can_move_its_cursor_gets_more_than_the_log_lines(monkeypatch):
    line = "Loss=[2.1] :smile:\n"
    assert log_and_work(io.StringIO()) == line
    assert line in log_and_work(Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert log_and_work(Terminal()) == line


def test_on_a_terminal_a_bar_shows_task_count_and_detail():
    stream = Terminal()
    with screen_on(stream) as screen:
        screen.progress.start("Training", 1000)
        screen.progress.advance("Training", 4, "loss 2.123")
    words = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", " ", stream.getvalue()).split()
    assert {"Training", "4/1,000", "2.123"} <= set(words)


def test_a_long_log_line_is_not_wrapped_on_a_terminal():
    stream = Terminal()
    with screen_on(stream) as screen:
        screen.handler.emit(logging.LogRecord("cstool", logging.INFO, "", 0, "x" * 300, (), None))
    assert "x" * 300 in stream.getvalue()


def test_a_task_may_be_finished_twice():
    with screen_on(Terminal()) as screen:
        screen.progress.start("Training", None)
        screen.progress.finish("Training")
        screen.progress.finish("Training")


def test_bytes_are_shown_as_a_bar_on_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with bars_in_bytes() as progress, told_in_bytes("Verifying a.mdl", progress) as tell:
        tell(2**20, 2**22)
        tell(2**21, 2**22)
        tell(1, 2**23)
    words = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", " ", stream.getvalue()).split()
    assert {"Verifying", "a.mdl", "B/8.39", "MB"} <= set(words)


def test_bytes_are_shown_to_nobody_elsewhere(capsys):
    with bars_in_bytes() as progress, told_in_bytes("Verifying a.mdl", progress) as tell:
        tell(1, 2)
    assert capsys.readouterr() == ("", "")
