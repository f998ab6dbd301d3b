"""Where a long command shows what it does: a bar below the log lines on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

from cstool.api.screen import is_terminal

if TYPE_CHECKING:
    import rich.console

    from cstool.runtime.progress import Progress


class Screen(NamedTuple):
    """What shows the log lines, and what shows how far a task has come."""

    handler: logging.Handler
    progress: Progress


class ConsoleHandler(logging.Handler):
    """Print log lines above the bars, as they are: no markup, no colours, no wrapping."""

    def __init__(self, console: rich.console.Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        self._console.print(self.format(record), markup=False, highlight=False, emoji=False, soft_wrap=True)


@contextmanager
def screen_on(stream: TextIO, amount: Callable[[int], str] = "{:,}".format) -> Iterator[Screen]:
    """Show a command on `stream` while it runs; `amount` writes how much is done, and the total."""
    if not is_terminal(stream):
        from cstool.runtime.progress import Silent

        yield Screen(logging.StreamHandler(stream), Silent())
        return
    from rich.console import Console

    from cstool.api.bars import BarProgress, FittingBars

    console = Console(file=stream)
    with FittingBars(console, amount) as bars:
        yield Screen(ConsoleHandler(console), BarProgress(bars))


@contextmanager
def progress_in_bytes(task: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what shows (bytes done, bytes in all) as a bar on stderr; nothing where nobody would see it."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    from cstool.cli.render import bytes_text

    with screen_on(sys.stderr, amount=bytes_text) as screen:
        shown_total: int | None = None

        def show(done: int, total: int) -> None:
            nonlocal shown_total
            if total != shown_total:
                screen.progress.start(task, total)
                shown_total = total
            screen.progress.advance(task, done)

        screen.progress.start(task, None)
        yield show
        screen.progress.finish(task)
