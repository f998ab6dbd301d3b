"""stdout and stderr on which control characters are shown in place of obeyed, wherever a command got them from."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from cstool.plain_text import lines


class HarmlessStream:
    """A stream of text that obeys line ends and tabs alone; all else is that of the stream behind it."""

    def __init__(self, stream: TextIO) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        """Write a text; control characters in it are shown."""
        return self.behind.write(lines(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def raw_stream(stream: TextIO) -> TextIO:
    """Return the stream that takes everything: for who draws on a terminal, and for text that goes through a pipe."""
    return stream.behind if isinstance(stream, HarmlessStream) else stream


@contextmanager
def harmless_streams() -> Iterator[None]:
    """Let stdout and stderr be harmless."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, HarmlessStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
