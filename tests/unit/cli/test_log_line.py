"""Log lines fit a terminal: fields go, words stay whole, commands can still be copied."""

import logging
import shlex

import pytest

from cstool.cli.log_line import fitted_line
from cstool.verbs.run_log import LINE_FORMAT

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
