r"""Text from a file, a name or a model for use in a message: shown, never obeyed.

A terminal obeys escape sequences, a line end can begin a false message, and marks of direction let a
line read as another one. They are shown as Python writes them: `\x1b`, `\n`, `\u202e`.
"""

import re

_DIRECTIONS = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"
_UNSEEN = "\u00ad\u180e\u200b-\u200d\u2060-\u2065\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_HALVES = "\ud800-\udfff"
_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTIONS}{_UNSEEN}{_HALVES}]")
_IN_A_LINE = re.compile(f"[\x00-\x1f\x7f-\x9f{_DIRECTIONS}{_UNSEEN}{_HALVES}]")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ON_A_TERMINAL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_DIRECTIONS}{_HALVES}]")


def one_line(text: str) -> str:
    r"""Return a text as part of a line.

    >>> print(one_line("weight\n\x1b[2Jerror: \u202efake"))
    weight\n\x1b[2Jerror: \u202efake
    """
    return text if text.isprintable() else _IN_A_LINE.sub(_shown, text)


def lines(text: str) -> str:
    """Return a text of several lines; their ends, and tabs, stay."""
    return text if text.isprintable() else _IN_LINES.sub(_shown, text)


def has_controls(text: str) -> bool:
    """Tell whether a text has a line end or another control character, which no path or option needs."""
    return _CONTROLS.search(text) is not None


def terminal_text(text: str) -> str:
    """A model's text for a terminal, with U+FFFD for characters that would move the cursor or turn the line around."""
    return text if text.isprintable() else _ON_A_TERMINAL.sub("\ufffd", text)


def _shown(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
