"""Display of a long command's progress: a bar below the log lines on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from cstool.foundation.plain_text import terminal_text
from cstool.foundation.progress.screen import Screen, is_terminal
from cstool.foundation.terminal.log_line import fitted_line
from cstool.foundation.terminal.surroundings import raw_stream
from cstool.foundation.words import bytes_text

if TYPE_CHECKING:
    import rich.console

    from cstool.foundation.progress import Progress


@dataclass(frozen=True, kw_only=True)
class TextScreen(Screen):
    """A screen with an output of text that comes piece by piece."""

    text: TextOutput


class TextOutput:
    """Text that comes piece by piece, on stdout; on a terminal log lines begin below it."""

    def __init__(self) -> None:
        self._is_terminal = is_terminal(sys.stdout)
        self._is_within_line = False

    def write(self, text: str) -> None:
        """Show a piece; on a terminal without characters that would move its cursor or change its colours."""
        if not text:
            return
        if self._is_terminal:
            text = terminal_text(text)
        raw_stream(sys.stdout).write(text)
        sys.stdout.flush()
        self._is_within_line = not text.endswith("\n")

    def end_line(self) -> None:
        """End the last line."""
        if self._is_within_line:
            self.write("\n")

    def make_room(self) -> None:
        """Begin a new line on the terminal for output of others."""
        if self._is_terminal:
            self.end_line()


class ConsoleHandler(logging.Handler):
    """Print log lines above the bars and below the text, fitted to the terminal; no markup, no colours."""

    def __init__(self, console: rich.console.Console, text: TextOutput) -> None:
        super().__init__()
        self._console = console
        self._text = text

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record, or lose it: a closed terminal is no reason to end a run."""
        line = fitted_line(record, self.format(record), self._console.width)
        with suppress(OSError):
            self._text.make_room()
            self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def screen_on(stream: TextIO, amount: Callable[[int], str] = "{:,}".format) -> Iterator[TextScreen]:
    """Show a command on `stream` while it runs; `amount` writes the units done, and the total."""
    text = TextOutput()
    if not is_terminal(stream):
        from cstool.foundation.progress import Silent

        yield TextScreen(Silent(), logging.StreamHandler(stream), text=text)
        return
    from rich.console import Console

    from cstool.foundation.progress.bars import BarProgress

    console = Console(file=raw_stream(stream))
    with closing(BarProgress(console, amount)) as bars:
        try:
            yield TextScreen(bars, ConsoleHandler(console, text), text=text)
        finally:
            text.make_room()


@contextmanager
def bars_in_bytes() -> Iterator[Progress]:
    """Show tasks that count bytes as bars on stderr; nothing where stderr is no terminal."""
    with screen_on(sys.stderr, amount=bytes_text) as screen:
        yield screen.progress
