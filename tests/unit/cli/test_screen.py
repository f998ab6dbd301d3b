"""Log lines and progress on a terminal and elsewhere."""

import io
import logging
import re
import shlex
import sys

import pytest

from cstool.cli.log_line import fitted_line
from cstool.cli.screen import bars_in_bytes, screen_on
from cstool.verbs.run_log import LINE_FORMAT
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


def test_where_there_is_room_a_line_is_as_in_the_file():
    assert fitted(TRAIN, 300) == [f"DATE NOON INFO:   {TRAIN}"]
    assert fitted("Compiling.", 120) == ["DATE NOON INFO:   Compiling."]


def test_on_a_narrow_terminal_it_begins_with_the_time_and_a_level_that_is_not_usual():
    assert fitted("Compiling.", 119) == ["NOON Compiling."]
    assert fitted("No data.", 119, logging.WARNING) == ["NOON WARNING: No data."]


STEP = "Step=600, Loss=1.60368"
LINES = {
    150: f"DATE NOON INFO:   | Train {STEP}, Rate=208.05 samples/sec, TokenRate=19024 tokens/sec, GradientNorm=2.31938",
    100: f"NOON | Train {STEP}, Rate=208.05 samples/sec, TokenRate=19024 tokens/sec",
    80: f"NOON | Train {STEP}, TokenRate=19024 tokens/sec",
    45: f"NOON | Train {STEP}",
}


def test_a_line_about_a_step_loses_whole_fields():
    assert {width: fitted(TRAIN, width) for width in LINES} == {width: [line] for width, line in LINES.items()}


def test_other_lines_are_cut_between_words_and_a_quantity_stays_whole():
    saved = "Saved checkpoint checkpoints/gpt_tiny/checkpoint_9.mdl (10.1 MB in 0.36 s, 0.03 GB/s)"
    assert fitted(saved, 80) == [
        "NOON Saved checkpoint checkpoints/gpt_tiny/checkpoint_9.mdl (10.1 MB in",
        "         0.36 s, 0.03 GB/s)",
    ]


def test_what_stands_beside_a_name_stays_beside_it():
    assert fitted("  held out  loss 4.87, accuracy 0.22, lm_perplexity 129.81 (48 samples)", 60) == [
        "NOON   held out  loss 4.87, accuracy 0.22, lm_perplexity",
        "                     129.81 (48 samples)",
    ]
    assert fitted("- what is said at some length about a thing", 40) == [
        "NOON - what is said at some length",
        "           about a thing",
    ]


@pytest.mark.parametrize("before", ["Running command: ", "  continue  "])
def test_a_command_can_be_pasted(before: str):
    command = "/bin/cstool run --params params/gpt_tiny.yaml --mode infer --prompt 'The quick fox'"
    lines = fitted(before + command, 80)
    assert len(lines) > 1
    assert all(len(line) <= 80 for line in lines)
    joined = "\n".join(lines).replace("\\\n", "")  # as a shell does
    assert shlex.split(joined.partition(before)[2]) == shlex.split(command)


def test_a_rule_is_cut_and_a_word_that_is_too_long_is_left_to_the_terminal():
    assert fitted("=" * 75, 60) == [f"NOON {'=' * 51}"]
    assert fitted(f"in {'x' * 90}", 60) == ["NOON in", f"         {'x' * 90}"]


def test_a_message_of_several_lines_keeps_them():
    assert fitted("one\n\ntwo", 60) == ["NOON one", "", "         two"]
