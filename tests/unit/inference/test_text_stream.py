"""Text as tokens come: whole characters, and no part of a stop text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.inference.text_stream import TextStream
from cstool.training.data import ByteTokenizer


def told(text: str, stops: tuple[str, ...] = (), prompt: str = "x") -> tuple[list[str], TextStream]:
    """Return the pieces that come for a text, byte by byte, and the stream."""
    stream = TextStream(ByteTokenizer(), list(prompt.encode()), stops)
    pieces = []
    for token in text.encode("utf-8", "surrogateescape"):
        pieces.append(stream.add(token))
        if stream.is_stopped:
            break
    return [*pieces, stream.finish()], stream


@pytest.mark.parametrize(
    ("content", "pieces"),
    [
        ("aä€".encode(), ["a", "", "ä", "", "", "€", ""]),
        (b"\xe2\x82", ["", "", "\ufffd"]),  # half a one at the end
        (b"\xffa", ["", "\ufffda", ""]),
    ],
)
def test_characters_come_when_they_are_whole_and_bytes_that_are_none_do_not_hold_them_back(content, pieces):
    stream = TextStream(ByteTokenizer(), [120])
    assert [*map(stream.add, content), stream.finish()] == pieces
    assert stream.text == "".join(pieces)


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("one. two", (".",), "one"),
        ("one. two", (". t",), "one"),
        ("a\n\nb", ("\n\n",), "a"),
        ("aab aac", ("aac",), "aab "),
        ("ababac", ("abac",), "ab"),
        ("both ends", ("ends", "th"), "bo"),
        ("nearly.", ("..",), "nearly."),
        (".", (".",), ""),
    ],
)
def test_a_stop_ends_the_text_and_is_no_part_of_it(text, stops, expected):
    pieces, stream = told(text, stops)
    assert stream.text == "".join(pieces) == expected


@given(st.text(alphabet="ab\n€", max_size=30), st.lists(st.text(alphabet="ab\n€", min_size=1, max_size=3), max_size=3))
def test_the_pieces_are_the_text_up_to_the_first_stop(text, stops):
    pieces, stream = told(text, tuple(stops))
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    # Characters come one by one, so the stop that is complete first ends the text, wherever others begin.
    complete = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if complete:
        first = min(complete)
        ends = [text[:first].find(stop) for stop in stops if stop in text[:first]]
    assert "".join(pieces) == stream.text == text[: min(ends, default=len(text))]
    assert stream.is_stopped == bool(ends)
