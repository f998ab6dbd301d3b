"""Texts of tokens: whole characters, stops, and the bytes of each token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.serving.spelling import Piece, SpelledText, Spelling
from cstool.training.data import ByteTokenizer
from tests.examples import examples

TOKENIZER = ByteTokenizer()
SPELLING = Spelling(TOKENIZER)


def pieces_of(tokens, stops=(), least=0) -> tuple[list[Piece], SpelledText]:
    text = SpelledText(TOKENIZER, SPELLING, [97], stops, least)
    found = []
    for token in tokens:
        found += text.add(token)
        if text.is_stopped:
            break
    return found + text.finish(), text


def shown(pieces) -> tuple[str, bytes]:
    return "".join(piece.text for piece in pieces), b"".join(each.content for piece in pieces for each in piece.tokens)


@examples(60)
@given(content=st.binary(max_size=12))
def test_bytes_of_tokens_are_those_of_the_text(content):
    text, together = shown(pieces_of(content)[0])
    assert (text, together) == (content.decode("utf-8", "replace"), text.encode())


def test_parts_of_a_character():
    (first, second), _ = pieces_of("é!".encode())
    assert (first.text, [each.content for each in first.tokens]) == ("é", [b"\xc3", b"\xa9"])
    assert (second.text, second.tokens[0].place) == ("!", 2)


@pytest.mark.parametrize(
    ("text", "stops", "expected", "is_stopped"),
    [
        ("abcdef", ["cd"], "ab", True),
        ("abcdef", ["cx"], "abcdef", False),
        ("abc", ["cd"], "abc", False),
        ("aé!b", ["é!"], "a", True),
        ("abcd", ["cd", "bc"], "a", True),
    ],
)
def test_stops(text, stops, expected, is_stopped):
    pieces, stream = pieces_of(text.encode(), stops)
    assert shown(pieces) == (expected, expected.encode())
    assert stream.is_stopped is is_stopped


def test_stops_before_the_least_number_of_tokens_do_not_count():
    pieces, _ = pieces_of(b"a.b.c", ["."], 3)
    assert shown(pieces)[0] == "a.b"
