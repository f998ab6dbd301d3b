"""The words of CSL, what numbers and strings stand for, and what is refused."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.language.source import CslError, Source
from cstool.csl.language.tokens import KEYWORDS, Token, number_value, string_value, tokenize
from tests.examples import examples
from tests.unit.csl.language.shown import cases, columns, whole


def words(text: str) -> list[tuple[str, str]]:
    tokens, wrong = tokenize(Source("a.csl", text))
    assert wrong is None
    return [(token.kind, token.text) for token in tokens]


def only(text: str) -> tuple[Source, Token]:
    source = Source("a.csl", text)
    tokens, wrong = tokenize(source)
    assert wrong is None
    assert [token.kind for token in tokens][1:] == ["end"]
    return source, tokens[0]


def test_kinds_of_words():
    kinds, texts = zip(*words('const _x1 = @get(0x1F, "a b"); // c\n.{.*}'), strict=True)
    assert " ".join(kinds) == "const name = builtin ( number , string ) ; . { .* } end"
    assert texts == ("const", "_x1", "=", "@get", "(", "0x1F", ",", '"a b"', ")", ";", ".", "{", ".*", "}", "")


WORDS = """
a<<=b>>c ==> a <<= b >> c    1...5 ==> 1 ... 5    1..5 ==> 1 .. 5    a.*.b ==> a .* . b    a+%b-%=c ==> a +% b -%= c
a++b**c ==> a ++ b ** c    |i|{1}->x[i] ==> | i | { 1 } -> x [ i ]    a=>b>=c==d!=e ==> a => b >= c == d != e
0x1E+2 ==> 0x1E + 2    1e-3-2 ==> 1e-3 - 2    0x1.8p-3+1 ==> 0x1.8p-3 + 1    a-1 ==> a - 1    *[*]u8 ==> * [ * ] u8
"""


@pytest.mark.parametrize(("text", "expected"), [*columns(WORDS), ("// only a comment", ""), ("\ufeffa\r\n\tb", "a b")])
def test_words_part_where_the_longest_ends(text, expected):
    assert " ".join(each for _, each in words(text)).strip() == expected


def test_words_say_where_they_stand():
    tokens, _ = tokenize(Source("a.csl", "// é\n  ab = 1"))
    places = [(token.text, token.start, token.end) for token in tokens]
    assert places == [("ab", 7, 9), ("=", 10, 11), ("1", 12, 13), ("", 13, 13)]


def test_words_with_a_meaning_only_where_they_stand_are_names():
    for word in "param task layout packed align linksection linkname void undefined true async error".split():
        assert words(word)[0] == ("name", word)
    for word in sorted(KEYWORDS):
        assert words(word)[0] == (word, word)


NUMBERS = r"""
0 ==> 0    012 ==> 12    1_000_000 ==> 1000000    0xFf_0a ==> 65290    0o17 ==> 15    0b1_01 ==> 5    1.5 ==> 1.5
1_0.2_5 ==> 10.25    1e3 ==> 1000.0    1.5E+2 ==> 150.0    25e-1 ==> 2.5    0x1.8p3 ==> 12.0    0x1p-2 ==> 0.25
0xA.8 ==> 10.5    'a' ==> 97    '\x0a' ==> 10    '\n' ==> 10    '\'' ==> 39    '"' ==> 34
"""


@pytest.mark.parametrize(("text", "value"), columns(NUMBERS))
def test_numbers(text, value):
    assert repr(number_value(*only(text))) == value


@examples(60)
@given(st.integers(min_value=0, max_value=10**40))
def test_integers_of_every_base(number):
    for text in (f"{number:d}", f"{number:_d}", f"0x{number:x}", f"0x{number:_X}", f"0o{number:o}", f"0b{number:_b}"):
        got = number_value(*only(text))
        assert got == number
        assert isinstance(got, int)


@examples(60)
@given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
def test_floats(number):
    shortest = repr(number)
    for text in (shortest, number.hex()):
        got = number_value(*only(text))
        assert isinstance(got, float)
        assert math.copysign(1, got) == 1
        assert got == number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'""', ""),
        (r'"a // b"', "a // b"),
        (r'"\n\r\t\\\"\'"', "\n\r\t\\\"'"),
        (r'"\x41\u{1F600}\u{e9}"', "A\U0001f600é"),
        ('"é"', "é"),
    ],
)
def test_strings(text, value):
    assert string_value(*only(text)) == value


def error_of(text: str) -> str:
    """All that is said of a number, a string, or words that cannot be any."""
    source = Source("a.csl", text)
    tokens, wrong = tokenize(source)
    if wrong is not None:
        return str(wrong)
    values = {"number": number_value, "string": string_value}
    (token,) = (each for each in tokens if each.kind in values)
    with pytest.raises(CslError) as caught:
        values[token.kind](source, token)
    return str(caught.value)


ALLOWED = "hint: numbers are 12, 1_000, 0x1F, 0o17, 0b101, 1.5, 1e-3 and 0x1.8p3; a name does not begin with a digit"
ESCAPES = r"hint: the escapes are \n \r \t \\ \" \' \x41 and \u{41}"
REFUSED = r"""
a = 0b12; ==> 1:5-8 not a number, 0b12 | ALLOWED
12abc ==> 1:1-5 not a number, 12abc | ALLOWED
a↵  0x ==> 2:3-4 not a number, 0x | ALLOWED
1e ==> 1:1-2 not a number, 1e | ALLOWED
1. ==> 1:1-2 not a number, 1. | hint: a digit follows the point: 1.0
0X1F ==> 1:1-4 not a number, 0X1F | hint: the prefixes are 0x, 0o and 0b
1__0 ==> 1:1-4 not a number, 1__0 | hint: '_' stands between two digits
10_ ==> 1:1-3 not a number, 10_ | hint: '_' stands between two digits
0x_1 ==> 1:1-4 not a number, 0x_1 | hint: '_' stands between two digits
1e999 ==> 1:1-5 a number too large for a float, 1e999
0x1p9999 ==> 1:1-8 a number too large for a float, 0x1p9999
"a\qb" ==> 1:3-4 not an escape of a string, \q | ESCAPES
"\u{110000}" ==> 1:2-11 not an escape of a string, \u{110000} | ESCAPES
"\u{d800}" ==> 1:2-9 not an escape of a string, \u{d800} | ESCAPES
a = "abc;↵b ==> 1:5-9 this string has no closing '"' | hint: a string ends on the line where it begins
'a ==> 1:1 expected a character and a closing ' after this ' | hint: a string is "text"
'ab' ==> 1:1-4 one character stands between single quotes, got 2 | hint: a string is "text"
a @ b ==> 1:3 expected the name of a builtin after '@'
a $ b ==> 1:3 a character that CSL has no use for, '$'
é ==> 1:1 a character that CSL has no use for, 'é'
a && b ==> 1:3-4 CSL has no '&&' | hint: write 'and'
a || b ==> 1:3-4 CSL has no '||' | hint: write 'or'
/* a */ ==> 1:1-2 CSL has no comments of several lines | hint: begin each line of the comment with //
x: ?u16 ==> 1:4 CSL has no optional types and no '?' | hint: a choice is 'if (c) a else b'
"""


@pytest.mark.parametrize(
    ("text", "said"), [*cases(REFUSED), ("9" * 1001, "1:1-1001 a number has at most 1000 characters, got 1001")]
)
def test_what_is_refused(text, said):
    said = said.replace("ALLOWED", ALLOWED).replace("ESCAPES", ESCAPES)
    assert error_of(text) == whole(said, {"a.csl": text})


def test_an_unseen_character_is_named_by_its_code():
    assert error_of("a\u00a0b").startswith("a.csl:1:2: a character that CSL has no use for, U+00A0\n")


def test_words_before_a_wrong_one_are_there():
    tokens, wrong = tokenize(Source("a.csl", "a = $ b"))
    assert [token.text for token in tokens] == ["a", "=", ""]
    assert tokens[-1].kind == "end"
    assert isinstance(wrong, CslError)


@examples(150)
@given(st.text(alphabet=st.sampled_from('ab1_0xe.+-*%&|<>=!"\\/@{}[]()\n \té'), max_size=40))
def test_words_and_blanks_make_up_the_text(text):
    tokens, wrong = tokenize(Source("a.csl", text))
    assert tokens[-1].kind == "end"
    end = 0
    for token in tokens:
        assert token.start >= end
        assert token.text == text[token.start : token.end]
        assert re.fullmatch(r"(?:\s|//[^\n]*)*", text[end : token.start])
        end = token.end
    if wrong is None:
        assert end == len(text)
    else:
        assert wrong.place is not None
        assert wrong.place.start == end
