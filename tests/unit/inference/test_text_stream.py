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


def test_characters_come_when_they_are_whole():
    pieces, stream = told("aä€")
    assert pieces == ["a", "", "ä", "", "", "€", ""]
    assert stream.text == "aä€"


def test_half_a_character_at_the_end_is_said_to_be_one():
    stream = TextStream(ByteTokenizer(), [120])
    assert [stream.add(0xE2), stream.add(0x82), stream.finish()] == ["", "", "\ufffd"]


def test_bytes_that_are_no_character_do_not_hold_back_what_follows():
    stream = TextStream(ByteTokenizer(), [120])
    assert [stream.add(0xFF), stream.add(ord("a")), stream.finish()] == ["", "\ufffda", ""]


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
