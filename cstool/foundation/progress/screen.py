"""Display of a verb's progress: bars on a terminal, a bar and a loss curve in a notebook, nothing elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TextIO

from cstool.foundation.words import check_choice

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress

Shown = Literal["auto", "none"]
"""place of the display: "auto", a terminal or a notebook if there is one; or none"""


@dataclass(frozen=True)
class Screen:
    """The display of log lines and of the progress of tasks.

    Args:
        progress: the object that is told of progress
        handler: of log lines; None where they go to the handlers that the user set up with `logging`
    """

    progress: Progress
    handler: logging.Handler | None = None


OpenScreen = Callable[[], AbstractContextManager[Screen]]


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def is_notebook() -> bool:
    """Tell whether this is a notebook; IPython is not imported for that."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def screen_of(progress: Shown | Progress) -> OpenScreen:
    """Opener of the screen of a verb that is called from Python.

    Args:
        progress: "auto", "none", or an object for progress

    Raises:
        CstoolError: it is another text
    """
    if isinstance(progress, str):
        check_choice("progress", progress, ("auto", "none"))
    return partial(_open, progress)


@contextmanager
def progress_of(progress: Shown | Progress) -> Iterator[Progress]:
    """Yield an object that is told the progress of a verb; see `screen_of`."""
    with screen_of(progress)() as screen:
        yield screen.progress


@contextmanager
def told_in_bytes(task: str, progress: Shown | Progress) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is told (bytes done, bytes in all) of a task; see `screen_of`."""
    with progress_of(progress) as shown:
        known: int | None = None

        def tell(done: int, total: int) -> None:
            nonlocal known
            if total != known:
                shown.start(task, total)
                known = total
            shown.advance(task, done)

        shown.start(task, None)
        yield tell
        shown.finish(task)


@contextmanager
def _open(progress: Shown | Progress) -> Iterator[Screen]:
    from cstool.foundation.progress import Silent

    if not isinstance(progress, str):
        yield Screen(progress)
    elif progress == "auto" and is_notebook():
        from cstool.foundation.progress.notebook import NotebookProgress

        with NotebookProgress() as shown:
            yield Screen(shown)
    elif progress == "auto" and is_terminal(sys.stderr):
        from rich.console import Console

        from cstool.foundation.progress.bars import BarProgress

        with closing(BarProgress(Console(file=sys.stderr), "{:,}".format)) as bars:
            yield Screen(bars)
    else:
        yield Screen(Silent())
