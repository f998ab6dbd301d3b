"""Position of a parser in its file, its expectations, and its error messages."""

from collections.abc import Iterable, Iterator

from cstool.csl.language.source import CslError, Place, Source
from cstool.csl.language.tokens import KEYWORDS, Token, tokenize

MAX_NESTING = 100  # of brackets, blocks and prefixes: a level costs up to six of Python's 1000 calls
_SHOWN = 30
_OPERANDS = frozenset(["name", "number", "string", "builtin", "{", "(", "const", "var", "fn", "if", "while", "for"])

_NO_ERRORS = "CSL has no errors to return: return a value that says what happened"
ZIG_WORDS = {
    "try": _NO_ERRORS,
    "catch": _NO_ERRORS,
    "error": _NO_ERRORS,
    "errdefer": _NO_ERRORS,
    "defer": "write the statement where the block ends",
    "orelse": "CSL has no optional types",
    "pub": "leave it out",
    "usingnamespace": "name the module: const m = @import_module(...)",
    "test": None,
    "threadlocal": None,
    "noalias": "leave it out",
    "volatile": "leave it out",
    "async": "asynchronous is an operation on DSDs: @fmovs(out, in, .{ .async = true })",
    "await": "a task that an operation activates goes on when it is done",
    "suspend": "a task that an operation activates goes on when it is done",
    "resume": "@activate starts a task",
    "nosuspend": None,
    "asm": None,
}


class Cursor:
    """A position between the words of a file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._tokens, self._broken = tokenize(source)
        self._at = 0
        self.token = self._tokens[0]
        self._depth = 0

    # --- going on ---

    def advance(self) -> Token:
        """Return the next word, and go behind it."""
        token = self.token
        if token.kind != "end":
            self._at += 1
            self.token = self._tokens[self._at]
        return token

    def ahead(self, count: int = 1) -> str:
        """The kind of the word `count` words later."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)].kind

    def accept(self, kind: str) -> bool:
        """Go behind the word if it is of a kind; tell whether it was."""
        if self.token.kind != kind:
            return False
        self.advance()
        return True

    def is_word(self, text: str) -> bool:
        """Whether the next word is a certain name; for words that are keywords in some places only."""
        return self.token.kind == "name" and self.token.text == text

    def deeper(self) -> None:
        """Begin one level of nesting; `shallower` ends it. After an error parsing stops, so none ends it then.

        Raises:
            CslError: the nesting is too deep.
        """
        if self._depth == MAX_NESTING:
            raise self.error(f"nested more than {MAX_NESTING} deep", self.at(self.token))
        self._depth += 1

    def shallower(self) -> None:
        """End one level of nesting."""
        self._depth -= 1

    # --- places ---

    def at(self, token: Token) -> Place:
        """The place of a word."""
        return Place(self.source, token.start, token.end)

    def since(self, start: int) -> Place:
        """The place from an offset to the end of the last word read."""
        return Place(self.source, start, self._tokens[self._at - 1].end)

    def behind(self) -> Place:
        """The place just behind the last word read."""
        end = self._tokens[self._at - 1].end if self._at else 0
        return Place(self.source, end, end)

    # --- required words ---

    def expect(self, kind: str, where: str) -> Token:
        """Go behind a required word, `where` in words: "after 'if'"."""
        if self.token.kind != kind:
            raise self.expected(f"'{kind}' {where}")
        return self.advance()

    def expect_after_this(self, kind: str) -> None:
        """Go behind a `;` or the like; if it is missing, the error points behind the last word."""
        if self.token.kind != kind:
            raise self.expected(f"'{kind}' after this", self.behind(), self._hint_of_equals())
        self.advance()

    def close(self, kind: str, opening: Token) -> None:
        """Go behind a bracket that closes an earlier one."""
        if self.token.kind != kind:
            note = (self.at(opening), f"this '{opening.text}' is not closed")
            raise self.expected(f"'{kind}'", hint=self._hint_of_equals(), notes=(note,))
        self.advance()

    def name(self, what: str) -> str:
        """Go behind a name that is declared or used here."""
        if self.token.kind != "name":
            hint = f"'{self.token.text}' is a word of the language" if self.token.kind in KEYWORDS else None
            raise self.expected(what, hint=hint)
        return self.advance().text

    def field_name(self, what: str) -> str:
        """Go behind the name of a field; any word may be one: `.async`, `.align`."""
        if not self.token.text.isidentifier():
            raise self.expected(what)
        return self.advance().text

    def items(self, closing: str, opening: Token) -> Iterator[None]:
        """Turn once for each item of a list; the loop's body reads the item. Ends behind the closing bracket."""
        going = not self.accept(closing)
        while going:
            yield
            going = self._more(closing, opening)

    def _more(self, closing: str, opening: Token) -> bool:
        """After an item of a list: whether another follows. Goes behind the comma, or behind the closing bracket."""
        if not self.accept(","):
            if self.token.kind != closing:
                note = (self.at(opening), f"this '{opening.text}' is not closed")
                raise self.expected(f"',' or '{closing}' after this", self.behind(), self._hint_of_equals(), (note,))
            self.advance()
            return False
        return not self.accept(closing)

    def distinct(self, names: Iterable[tuple[str, Place]], what: str) -> None:
        """Refuse a repeated name."""
        seen: dict[str, Place] = {}
        for name, place in names:
            if name in seen:
                raise self.error(f"{what} '{name}' is there twice", place, notes=((seen[name], "the first one"),))
            seen[name] = place

    # --- errors ---

    def error(
        self, message: str, place: Place, hint: str | None = None, notes: tuple[tuple[Place, str], ...] = ()
    ) -> CslError:
        """An error to raise: this one; or, at the end of all words read, the error that ended them early."""
        if self.token.kind == "end" and self._broken is not None:
            return self._broken
        return CslError(message, place, hint, notes)

    def expected(
        self,
        what: str,
        place: Place | None = None,
        hint: str | None = None,
        notes: tuple[tuple[Place, str], ...] = (),
    ) -> CslError:
        """An error to raise: the expected word and the word here.

        Raises:
            CslError: the word here is a keyword of Zig's that CSL lacks.
        """
        self._refuse_zig()
        return self.error(
            f"expected {what}, got {self.shown()}", self.at(self.token) if place is None else place, hint, notes
        )

    def _hint_of_equals(self) -> str | None:
        return "'==' compares; an assignment is a statement of its own" if self.token.kind == "=" else None

    def refuse_word_of_zig(self, token: Token) -> None:
        """Raise an error for a word of Zig's that CSL lacks."""
        if token.kind == "name" and token.text in ZIG_WORDS:
            raise self.error(f"CSL has no '{token.text}'", self.at(token), ZIG_WORDS[token.text])

    def _refuse_zig(self) -> None:
        """Raise an error for a word of Zig's in a place where Zig has it; elsewhere it may be a name in CSL."""
        if self.token.text in ("catch", "orelse"):
            self.refuse_word_of_zig(self.token)
        before = self._tokens[max(0, self._at - 1)]
        between = self.source.text[before.end : self.token.start]
        if self.token.kind in _OPERANDS and "\n" not in between:
            self.refuse_word_of_zig(before)

    def shown(self) -> str:
        """The next word for a message."""
        text = self.token.text
        if self.token.kind == "end":
            return "the end of the file"
        if self.token.kind == "string":
            return text if len(text) <= _SHOWN else f'{text[:_SHOWN]}..."'
        return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}...'"

    def end(self) -> None:
        """Check that nothing follows.

        Raises:
            CslError: more follows.
        """
        if self._broken is not None and self.token.kind == "end":
            raise self._broken
        if self.token.kind != "end":
            raise self.expected("nothing more")
