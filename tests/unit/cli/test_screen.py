"""Log lines and progress on a terminal and elsewhere."""

import io
import logging
import re
import shlex
import sys

import pytest

from cstool.foundation.progress.screen import told_in_bytes
from cstool.foundation.terminal.log_line import fitted_line
from cstool.foundation.terminal.screen import bars_in_bytes, screen_on
from cstool.training.verbs.run_log import LINE_FORMAT


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


# Log lines fit a terminal: fields go, words stay whole, commands can still be copied.


TRAIN = (
    "| Train Device=CSX, Step=600, Loss=1.60368, Rate=208.05 samples/sec, GlobalRate=148.63 samples/sec, "
    "LoopTimeRemaining=0:00:00, TimeRemaining>0:00:00, TokenRate=19024 tokens/sec, InputWait=0.1%, "
    "GradientNorm=2.31938"
)


def fitted(message: str, width: int, level: int = logging.INFO) -> list[str]:
    """Return the lines of a message logged at noon."""
    record = logging.LogRecord("cstool", level, "", 0, message, (), None)
    formatter = logging.Formatter(LINE_FORMAT)
    text = formatter.format(record)
    lines = fitted_line(record, text, width).split("\n")
    time = formatter.formatTime(record)
    return [line.replace(time, "DATE NOON").replace(time[11:19], "NOON") for line in lines]


STEP = "Step=600, Loss=1.60368"
SAVED = "Saved checkpoint checkpoints/gpt_tiny/checkpoint_9.mdl (10.1 MB in 0.36 s, 0.03 GB/s)"
HELD_OUT = "  held out  loss 4.87, accuracy 0.22, lm_perplexity 129.81 (48 samples)"
SAID = "what is said at some length"
LINES = [
    # Where there is room a line is as in the file; else it begins with the time, and a level that is not usual.
    (TRAIN, 300, [f"DATE NOON INFO:   {TRAIN}"]),
    ("Compiling.", 120, ["DATE NOON INFO:   Compiling."]),
    ("Compiling.", 119, ["NOON Compiling."]),
    # A line about a step loses whole fields.
    (TRAIN, 150, [f"DATE NOON INFO:   | Train {STEP}, Rate=208.05 samples/sec, TokenRate=19024 tokens/sec, "
                  "GradientNorm=2.31938"]),
    (TRAIN, 100, [f"NOON | Train {STEP}, Rate=208.05 samples/sec, TokenRate=19024 tokens/sec"]),
    (TRAIN, 80, [f"NOON | Train {STEP}, TokenRate=19024 tokens/sec"]),
    (TRAIN, 45, [f"NOON | Train {STEP}"]),
    # Others are cut between words; a quantity stays whole, and what stands beside a name stays beside it.
    (SAVED, 80, [f"NOON {SAVED.partition(' 0.36')[0]}", f"{'':9}0.36 s, 0.03 GB/s)"]),
    (HELD_OUT, 60, ["NOON   held out  loss 4.87, accuracy 0.22, lm_perplexity", f"{'':21}129.81 (48 samples)"]),
    (f"- {SAID} about a thing", 40, [f"NOON - {SAID}", f"{'':11}about a thing"]),
    # A rule is cut, a word that is too long is left to the terminal, several lines stay several.
    ("=" * 75, 60, [f"NOON {'=' * 51}"]),
    (f"in {'x' * 90}", 60, ["NOON in", f"         {'x' * 90}"]),
    ("one\n\ntwo", 60, ["NOON one", "", "         two"]),
]  # fmt: skip


@pytest.mark.parametrize(("message", "width", "lines"), LINES)
def test_a_log_line_fits_a_terminal(message, width, lines):
    assert fitted(message, width) == lines


def test_a_level_that_is_not_usual_is_told():
    assert fitted("No data.", 119, logging.WARNING) == ["NOON WARNING: No data."]


@pytest.mark.parametrize("before", ["Running command: ", "  continue  "])
def test_a_command_can_be_pasted(before: str):
    command = "/bin/cstool run --params params/gpt_tiny.yaml --mode infer --prompt 'The quick fox'"
    lines = fitted(before + command, 80)
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)
    joined = "\n".join(lines).replace("\\\n", "")  # as a shell does
    assert shlex.split(joined.partition(before)[2]) == shlex.split(command)
