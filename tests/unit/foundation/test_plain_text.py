"""Text of files, as messages show it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.plain_text import lines, one_line, terminal_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("embed_tokens.weight", "embed_tokens.weight"),
        ("naïve 重み \u00a0 x", "naïve 重み \u00a0 x"),
        ("a\x1b[2J", r"a\x1b[2J"),
        ("a\nerror: b", r"a\nerror: b"),
        ("a\r\tb", r"a\r\tb"),
        ("a\x85b\x9bc\x7f", r"a\x85b\x9bc\x7f"),
        ("a\u202eb\u2066c\u200f\u2028d", r"a\u202eb\u2066c\u200f\u2028d"),
        ("a\u200bb\ufeff\u00ad", r"a\u200bb\ufeff\xad"),
        ("a\udcff", r"a\udcff"),
        ("a\U000e0041", r"a\U000e0041"),
        ("[bold]a[/bold]", "[bold]a[/bold]"),
        ("a\\n", "a\\n"),
    ],
)
def test_what_would_be_obeyed_is_shown(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_of_lines_the_ends_stay() -> None:
    assert lines("a\n\tb\x1b\r\n\u2028") == "a\n\tb\\x1b\\r\n\\u2028"


def test_what_a_model_wrote_is_text_as_it_is_without_what_moves_the_cursor() -> None:
    assert (
        terminal_text("a\n\tb\x1b[2J\r\u202e\ud800 مى\u200cخواهم") == "a\n\tb\ufffd[2J\ufffd\ufffd\ufffd مى\u200cخواهم"
    )


@given(st.text(st.characters()))
def test_no_character_that_is_left_can_be_obeyed(text: str) -> None:
    shown = one_line(text)
    assert {unicodedata.category(character) for character in shown}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    assert {unicodedata.bidirectional(character) for character in shown}.isdisjoint(
        {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    )
    assert one_line(shown) == shown
