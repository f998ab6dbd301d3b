"""Lines of a log on a narrow terminal: whole fields go, and lines are cut between words.

The log file has every line whole.
"""

import logging
import re
import time
from textwrap import wrap

from cstool.foundation.terminal.help_text import command_lines

NARROW = 120
"""terminal width below which a line begins with the time alone [columns]"""
_LEAST = 20
"""least columns for a message"""
_DROPPED = (
    "Device",
    "LoopTimeRemaining",
    "GlobalRate",
    "InputWait",
    "TimeRemaining",
    "GradientNorm",
    "Rate",
    "TokenRate",
)
"""fields of a line about a step, in the order of their removal"""
_FIELDS = re.compile(r"\| (?P<kind>\w+) (?P<fields>\w+[=>].*)")
_ROW = re.compile(r"  \S+(?: \S+)*  +|\s*(?:[-*] )?")
"""indent for further lines of a message: their text stands behind a name in a column, or behind blanks"""
_COMMAND = re.compile(r"(?P<before>Running command: |  \S+  +)(?P<command>\S*cstool .*)")
_QUANTITY = re.compile(r"(\d) (?=[A-Za-z])")
"""space between a number and its unit"""


def fitted_line(record: logging.LogRecord, text: str, width: int) -> str:
    """Return a log line for a terminal.

    Args:
        record: the record
        text: its line in the log file
        width: width of the terminal [columns]
    """
    message = record.getMessage()
    prefix = text.removesuffix(message)
    if width < NARROW and prefix:
        level = "" if record.levelno == logging.INFO else f"{record.levelname}: "
        prefix = f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {level}"
    room = max(width - len(prefix), _LEAST)
    lines = [line for part in message.split("\n") for line in _fitted(part, room)]
    return "\n".join([f"{prefix}{lines[0]}", *(f"{'':{len(prefix)}}{line}" if line else "" for line in lines[1:])])


def _fitted(message: str, room: int) -> list[str]:
    if len(message) <= room:
        return [message]
    if set(message) in ({"="}, {"-"}):  # a rule
        return [message[:room]]
    if found := _FIELDS.fullmatch(message):
        message = _with_fewer_fields(found["kind"], found["fields"].split(", "), room)
    if found := _COMMAND.fullmatch(message):
        before = found["before"]
        first, *others = command_lines(found["command"], room - len(before))
        return [f"{before}{first}", *(f"{'':{len(before)}}{line}" for line in others)]
    row = _ROW.match(message)
    indent = 0 if row is None else min(row.end(), room - _LEAST)
    bound = _QUANTITY.sub("\\1\u00a0", message)
    hanging = " " * max(indent, 0)
    lines = wrap(bound, room, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def _with_fewer_fields(kind: str, fields: list[str], room: int) -> str:
    """Return the line about a step with as many fields as there is room for; step and loss always stay."""

    def line() -> str:
        return f"| {kind} {', '.join(fields)}"

    for name in _DROPPED:
        if len(line()) > room:
            fields = [field for field in fields if re.split("[=>]", field)[0] != name]
    return line()
