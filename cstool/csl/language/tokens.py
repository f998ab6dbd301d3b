r"""The words of a CSL file, found with one regular expression, and the values of numbers and strings.

CSL writes its words as Zig does: `//` comments, `@name` for a builtin, numbers with `_` between digits.
"""

import re
from typing import NamedTuple

from cstool.csl.language.source import CslError, Place, Source

# `packed`, `param`, `task`, `layout`, `align` and their like mean something only where they stand.
KEYWORDS = frozenset(
    "and break comptime const continue else enum export extern fn for if inline or return struct switch union var "
    "while".split()
)
_LONGEST_NUMBER = 1000

_TOKEN = re.compile(
    r"""
    (?P<blank>    (?: [ \t\r\n]+ | //[^\n]* )+ )
  | (?P<name>     [A-Za-z_]\w* )
  | (?P<number>   0[xX]\w* (?:\.(?![.*])\w*)? (?:(?<=[pP])[+-]\w+)?
                | \d\w* (?:\.(?![.*])\w*)? (?:(?<=[eE])[+-]\w+)?
                | '(?:[^'\\\n]|\\.)+' )
  | (?P<string>   "(?:[^"\\\n]|\\.)*" )
  | (?P<builtin>  @[A-Za-z_]\w* )
  | (?P<operator> \.\.\. | \.\. | \.\* | <<= | >>= | << | >> | [-+*]%=? | -> | => | == | != | <= | >= | \+\+ | \*\*
                | [-+*/%&|^]= | && | \|\| | /\* | [-+*/%&|^~!<>=.,:;?(){}\[\]] )
    """,
    re.VERBOSE | re.ASCII,
)
_REFUSED = {
    "&&": ("CSL has no '&&'", "write 'and'"),
    "||": ("CSL has no '||'", "write 'or'"),
    "/*": ("CSL has no comments of several lines", "begin each line of the comment with //"),
    "?": ("CSL has no optional types and no '?'", "a choice is 'if (c) a else b'"),
}

_DECIMAL = r"\d(?:_?\d)*"
_HEX = r"[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_INTEGER = re.compile(rf"0x{_HEX}|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*|{_DECIMAL}", re.ASCII)
_FLOAT = re.compile(rf"{_DECIMAL}(?:\.{_DECIMAL})?(?:[eE][+-]?{_DECIMAL})?", re.ASCII)
_HEX_FLOAT = re.compile(rf"0x{_HEX}(?:\.{_HEX})?(?:[pP][+-]?{_DECIMAL})?", re.ASCII)

_ESCAPE = re.compile(r"\\(?:([nrt\\\"'])|x([0-9a-fA-F]{2})|u\{([0-9a-fA-F]{1,6})\}|.)")
_MEANT = {"n": "\n", "r": "\r", "t": "\t"}
_LAST_CHARACTER = 0x10FFFF


class Token(NamedTuple):
    """A word of a file.

    Args:
        kind: "name", "number" (also a character: 'a'), "string", "builtin" (with its `@`), "end", or the word itself:
            "const", "+=", "{"
        text: as it stands in the file
        start: offset of its first character
        end: offset behind its last one
    """

    kind: str
    text: str
    start: int
    end: int


def tokenize(source: Source) -> tuple[list[Token], CslError | None]:
    """All words of a file, up to the first invalid one, and the error of that one.

    The last is always of the kind "end". The caller decides when to raise the error: an error before it is to be told
    first.
    """
    text = source.text
    tokens: list[Token] = []
    match = _TOKEN.match
    at = 1 if text.startswith("\ufeff") else 0
    while at < len(text):
        found = match(text, at)
        if found is None or (found.lastgroup == "operator" and found[0] in _REFUSED):
            tokens.append(Token("end", "", at, at))
            return tokens, _refusal(source, at, found)
        start, at = at, found.end()
        group = found.lastgroup
        if group == "blank":
            continue
        word = found[0]
        kind = word if group == "operator" or word in KEYWORDS else str(group)
        tokens.append(Token(kind, word, start, at))
    tokens.append(Token("end", "", at, at))
    return tokens, None


def _refusal(source: Source, at: int, found: re.Match[str] | None) -> CslError:
    if found is not None:
        message, hint = _REFUSED[found[0]]
        return CslError(message, Place(source, at, found.end()), hint)
    character = source.text[at]
    place = Place(source, at, at + 1)
    if character == '"':
        line_end = source.text.find("\n", at)
        place = Place(source, at, len(source.text) if line_end < 0 else line_end)
        return CslError("this string has no closing '\"'", place, "a string ends on the line where it begins")
    if character == "'":
        return CslError("expected a character and a closing ' after this '", place, 'a string is "text"')
    if character == "@":
        return CslError("expected the name of a builtin after '@'", place)
    shown = f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"
    return CslError(f"a character that CSL has no use for, {shown}", place)


def number_value(source: Source, token: Token) -> int | float:
    r"""The value of a number: an int, or a float where it has a point or an exponent.

    A character is a number, too: its code (SDK documentation, "Type System in CSL": 'a' is 97, '\x0a' is 10).

    Raises:
        CslError: it is no number after all, such as `0b12`, or it is too large.
    """
    text = token.text
    if text[0] == "'":
        return _character_value(source, token)
    place = Place(source, token.start, token.end)
    if len(text) > _LONGEST_NUMBER:
        raise CslError(f"a number has at most {_LONGEST_NUMBER} characters, got {len(text)}", place)
    plain = text.replace("_", "")
    if _INTEGER.fullmatch(text):
        # Not base 0: Python refuses the zero before 012, which is 12 here.
        base = {"0x": 16, "0o": 8, "0b": 2}.get(plain[:2], 10)
        return int(plain, base)
    value = None
    if _HEX_FLOAT.fullmatch(text):
        try:
            value = float.fromhex(plain)
        except OverflowError:
            value = float("inf")
    elif _FLOAT.fullmatch(text):
        value = float(plain)
    if value is None:
        raise CslError(f"not a number, {text}", place, _number_hint(text))
    if value == float("inf"):
        raise CslError(f"a number too large for a float, {text}", place)
    return value


def _character_value(source: Source, token: Token) -> int:
    found = string_value(source, token)
    if len(found) != 1:
        place = Place(source, token.start, token.end)
        raise CslError(f"one character stands between single quotes, got {len(found)}", place, 'a string is "text"')
    return ord(found)


def _number_hint(text: str) -> str:
    if text.endswith("."):
        return "a digit follows the point: 1.0"
    if text[:2] in ("0X", "0O", "0B"):
        return "the prefixes are 0x, 0o and 0b"
    if "_" in text:
        return "'_' stands between two digits"
    return "numbers are 12, 1_000, 0x1F, 0o17, 0b101, 1.5, 1e-3 and 0x1.8p3; a name does not begin with a digit"


def string_value(source: Source, token: Token) -> str:
    r"""The value of a string (or what is between single quotes), with `\n`, `\x41`, `\u{41}` and the others resolved.

    Raises:
        CslError: it has an escape that CSL lacks.
    """

    def meant(found: re.Match[str]) -> str:
        letter, code, long_code = found.groups()
        if letter is not None:
            return _MEANT.get(letter, letter)
        number = int(code or long_code, 16) if code or long_code else None
        if number is None or number > _LAST_CHARACTER or 0xD800 <= number <= 0xDFFF:
            start = token.start + 1 + found.start()
            raise CslError(
                f"not an escape of a string, {found[0]}",
                Place(source, start, start + len(found[0])),
                r"the escapes are \n \r \t \\ \" \' \x41 and \u{41}",
            )
        return chr(number)

    body = token.text[1:-1]
    return _ESCAPE.sub(meant, body) if "\\" in body else body
