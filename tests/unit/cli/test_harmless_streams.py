"""stdout and stderr of a command."""

from __future__ import annotations

import sys

import pytest

from cstool.cli.harmless_streams import harmless_streams, raw_stream
from cstool.cli.screen import TextOutput


def test_control_characters_are_shown_and_line_ends_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    with harmless_streams():
        print("a\x1b[31m\n\tb")
        print("c\u202e", file=sys.stderr)
    print("\x1b after")
    assert capsys.readouterr() == ("a\\x1b[31m\n\tb\n\x1b after\n", "c\\u202e\n")


def test_text_that_a_model_wrote_goes_through_a_pipe_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with harmless_streams():
        TextOutput().write("a\x1b\u202e\r\n")
    assert capsys.readouterr().out == "a\x1b\u202e\r\n"


def test_a_raw_stream_is_the_stream_behind() -> None:
    before = sys.stdout
    with harmless_streams():
        assert (raw_stream(sys.stdout), sys.stdout is before) == (before, False)
    assert (raw_stream(sys.stdout), sys.stdout) == (before, before)
