"""A CSL file, a place in it, and an error that points at one."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cstool.foundation.errors import CstoolError
from cstool.foundation.plain_text import one_line


@dataclass(frozen=True, eq=False)
class Source:
    """One file of CSL.

    Args:
        name: its name in messages: the path that the user typed, or `<library/module>`
        text: the whole text
    """

    name: str
    text: str
    _starts: list[int] = field(default_factory=list, repr=False)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        if not self._starts:
            self._starts.extend([0, *(at + 1 for at, character in enumerate(self.text) if character == "\n")])
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of line `number`, from 1, without its end."""
        lines = self.text.split("\n")
        return lines[number - 1].removesuffix("\r") if number <= len(lines) else ""


class Place(NamedTuple):
    """A place in a source: characters `start` to `end`."""

    source: Source
    start: int
    end: int

    def __str__(self) -> str:
        """One line, for any name of the file: it stands in messages, and in comments of compiled code."""
        line, column = self.source.line_and_column(self.start)
        return f"{one_line(self.source.name)}:{line}:{column}"

    def caret(self) -> str:
        """The line of the source, and carets below the place."""
        number, column = self.source.line_and_column(self.start)
        text = one_line(self.source.line(number).replace("\t", " "))
        width = max(1, min(self.end - self.start, len(text) - column + 1))
        return f"    {text}\n    {' ' * (column - 1)}{'^' * width}"


class CslError(CstoolError):
    """An error in a CSL program, and its place.

    Args:
        message: *rule, got value*
        place: its place; None for an error without a single place
        hint: a remedy
        notes: further places that matter: (place, text), a route that conflicts, a call on the way
    """

    exit_code = 1

    def __init__(
        self, message: str, place: Place | None, hint: str | None = None, notes: tuple[tuple[Place, str], ...] = ()
    ) -> None:
        super().__init__(message if place is None else f"{place}: {message}", hint)
        self.place = place
        self.notes = notes

    def noted(self, place: Place, text: str) -> "CslError":
        """The error with one more note."""
        error = CslError(self.message, None, self.hint, (*self.notes, (place, text)))
        error.place, error.message = self.place, self.message
        return error

    def __str__(self) -> str:
        lines = [self.message]
        if self.place is not None:
            lines.append(self.place.caret())
        for place, text in self.notes:
            lines += [f"note: {place}: {one_line(text)}", place.caret()]
        if self.hint is not None:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class Keeper:
    """Decides whether the first error ends a compilation.

    Args:
        keeps: whether errors are kept, so that one run finds several

    Attributes:
        errors: errors so far, each once
        failures: how often there was one
        note: a place, and why it matters to the errors to come; None: none does
    """

    def __init__(self, keeps: bool = False) -> None:
        self.keeps = keeps
        self.errors: list[CslError] = []
        self.failures = 0
        self.note: tuple[Place, str] | None = None

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep an error of the body of the `with`, or raise it."""
        try:
            yield
        except CslError as error:
            if not self.keeps:
                raise
            self.keep(error)

    def keep(self, error: CslError) -> None:
        """Keep an error, unless it is there already."""
        self.failures += 1
        # A message has its place in it.
        if all(each.message != error.message for each in self.errors):
            self.errors.append(error if self.note is None else error.noted(*self.note))

    def stop(self) -> None:
        """Raise the first error, if there is one: later ones would only follow from it."""
        if self.errors:
            raise self.errors[0]


def shown_path(path: str) -> str:
    """A path for messages: relative where that is shorter."""
    relative = os.path.relpath(path)
    return one_line(path if relative.startswith("..") else relative)


def text_of(path: str, shown: str) -> str:
    """The text of a file.

    Raises:
        CslError: it is not text in UTF-8.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CslError(f"{shown}: must be text in UTF-8", None) from None
