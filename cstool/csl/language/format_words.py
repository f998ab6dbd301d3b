"""The words of a CSL file as its formatter sees them: tokens and comments, with the part that each has in the syntax.

The syntax tree tells a pointer's `*` from a product, and a block's brace from a literal's.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cstool.csl.language import syntax
from cstool.csl.language.source import Source
from cstool.csl.language.tokens import Token, tokenize

_COMMENT = re.compile(r"//[^\n]*")
_OPENING = {"(": ")", "[": "]", "{": "}"}


@dataclass(slots=True, eq=False)
class Word:
    """A token or a comment.

    Args:
        kind: as of a token; "comment"; "end" for the end of the file
        text: its text; of a comment without blanks at its end
        column: column in the source, from 0
        newlines: line ends before it: 0, 1, or more where lines are empty
        role: its part in the syntax, where its kind leaves several: "prefix", "type", "capture", "block", ...
        begins: what begins with it: "item" of a list or a block, "branch" of an `if` or a loop, or ""
        match: number of the bracket that belongs to it; -1: none
        inside: number of the bracket around it; -1: none
        owner: of an `else` and of what begins a branch, number of the `if` or the loop; -1: none
        comma: whether a comma is written behind it, at the end of a list in braces
    """

    kind: str
    text: str
    column: int
    newlines: int
    role: str = ""
    begins: str = ""
    match: int = -1
    inside: int = -1
    owner: int = -1
    comma: bool = False


def words_of(source: Source, file: syntax.File) -> list[Word]:
    """The words of a file, its end the last one; without the commas at the ends of lists in braces."""
    tokens, _ = tokenize(source)
    tokens = [*(each for each, after in pairwise(tokens) if (each.kind, after.kind) != (",", "}")), tokens[-1]]
    text = source.text
    words: list[Word] = []
    number_of = []
    at = 1 if text.startswith("\ufeff") else 0
    for token in tokens:
        for comment in _COMMENT.finditer(text, at, token.start):
            words.append(_word("comment", comment[0].rstrip(), text, at, comment.start()))
            at = comment.end()
        number_of.append(len(words))
        words.append(_word(token.kind, token.text, text, at, token.start))
        at = token.end
    _match(words)
    _Roles(tokens, [words[number] for number in number_of], number_of, words).file(file)
    return words


def _word(kind: str, written: str, text: str, before: int, start: int) -> Word:
    column = start - (text.rfind("\n", 0, start) + 1)
    return Word(kind, written, column, text.count("\n", before, start))


def _match(words: Sequence[Word]) -> None:
    open_ones: list[int] = []
    for number, word in enumerate(words):
        if word.kind in (")", "]", "}"):
            word.match = open_ones.pop()
            words[word.match].match = number
        word.inside = open_ones[-1] if open_ones else -1
        if word.kind in _OPENING:
            open_ones.append(number)


class _Roles:
    """Gives words their roles, node by node; positions are numbers of tokens."""

    def __init__(self, tokens: Sequence[Token], words: Sequence[Word], numbers: list[int], all_words: list[Word]):
        self.words = words
        self.numbers = numbers
        self.all_words = all_words
        self.starts = [token.start for token in tokens]
        self.ends = [token.end for token in tokens]

    def file(self, file: syntax.File) -> None:
        self._statements(0, file.declarations)
        for node in syntax.walk(file):
            method = getattr(self, f"_{type(node).__name__.lower()}", None)
            if method is not None:
                method(node)

    # --- positions ---

    def _first(self, node: syntax.Node) -> int:
        return bisect_left(self.starts, node.place.start)

    def _last(self, node: syntax.Node) -> int:
        return bisect_left(self.ends, node.place.end)

    def _match(self, at: int) -> int:
        return bisect_left(self.numbers, self.words[at].match)

    def _next(self, kind: str, at: int) -> int:
        while self.words[at].kind != kind:
            at += 1
        return at

    def _opening(self, node: syntax.Node, role: str) -> int:
        """The brace that a node's last `}` closes; both get a role."""
        closing = self._last(node)
        opening = self._match(closing)
        self.words[opening].role = self.words[closing].role = role
        return opening

    def _items(self, opening: int) -> None:
        """Mark what begins the items of a list."""
        number = self.numbers[opening]
        at = opening + 1
        end = self._match(opening)
        self.words[at].begins = "item" if at < end else ""
        while at < end:
            word = self.words[at]
            if word.kind == "," and word.inside == number and at + 1 < end:
                self.words[at + 1].begins = "item"
            at = self._match(at) if word.kind in _OPENING else at + 1

    # --- types and operands ---

    def _unary(self, node: syntax.Unary) -> None:
        self.words[self._first(node)].role = "prefix"

    _enumliteral = _unary

    def _pointertype(self, node: syntax.PointerType) -> None:
        at = self._first(node)
        if node.many:
            self._arraytype(node)
        elif self.starts[at] == node.place.start:
            self.words[at].role = "prefix"

    def _arraytype(self, node: syntax.ArrayType | syntax.PointerType) -> None:
        opening = self._first(node)
        self.words[opening].role = self.words[self._match(opening)].role = "type"

    def _functiontype(self, node: syntax.FunctionType) -> None:
        opening = self._first(node) + 1
        self.words[opening - 1].role = self.words[opening].role = self.words[self._match(opening)].role = "type"
        self._items(opening)

    def _tensoraccess(self, node: syntax.TensorAccess) -> None:
        opening = self._first(node)
        closing = self._next("|", opening + 1)
        self.words[opening].role, self.words[closing].role = "open capture", "close capture"
        self.words[closing + 1].role = self.words[self._match(closing + 1)].role = "tight"

    def _call(self, node: syntax.Call | syntax.Builtin | syntax.Index) -> None:
        opening = self._match(self._last(node))
        self.words[opening].role = "call"
        self._items(opening)

    _builtin = _index = _call

    def _structliteral(self, node: syntax.StructLiteral) -> None:
        is_short = isinstance(node.type, syntax.ArrayType) and len(node.fields) == 1
        opening = self._opening(node, "tight list" if is_short else "list")
        if node.type is None:
            self.words[self._first(node)].role = "prefix"
        self._items(opening)

    def _structtype(self, node: syntax.StructType | syntax.EnumType) -> None:
        self._items(self._opening(node, "body"))

    _enumtype = _structtype

    # --- statements ---

    def _function(self, node: syntax.Function) -> None:
        opening = self._next("(", self._first(node))
        self.words[opening].role = "call"
        self._items(opening)

    def _block(self, node: syntax.Block) -> None:
        if self.words[self._last(node)].kind != "}" or self.words[self._first(node)].kind == "comptime":
            return  # the single statement behind `comptime`
        if node.statements and self._first(node.statements[0]) == self._first(node) and node.label is None:
            return
        opening = self._opening(node, "block")
        if node.label is not None:
            self.words[self._first(node) + 1].role = "label"
        self._statements(opening + 1, node.statements)

    def _statements(self, at: int, statements: Sequence[syntax.Node]) -> None:
        for statement in statements:
            self.words[at].begins = "item"
            at = self._last(statement)
            # A place leaves out the parentheses around an expression, and mostly the semicolon.
            if self.words[at].kind not in (";", "}") or self.words[at + 1].kind == ")":
                at = self._next(";", at)
            at += 2 if self.words[at + 1].kind == ";" else 1

    def _if(self, node: syntax.If) -> None:
        first = self._first(node)
        self._branch(self._match(first + 1) + 1, first)
        if node.otherwise is not None:
            at = self._first(node.otherwise)
            while self.words[at].kind != "else":
                at -= 1
            self.words[at].owner = self.numbers[first]
            self._branch(at + 1, first)

    def _branch(self, at: int, owner: int) -> None:
        if self.words[at].kind != "{":
            self.words[at].begins = "branch"
            self.words[at].owner = self.numbers[owner]

    def _switch(self, node: syntax.Switch) -> None:
        opening = self._opening(node, "body")
        at = opening + 1
        for case in node.cases:
            self.words[at].begins = "item"
            at = self._last(case)
            at = at + 1 if self.words[at + 1].kind in (",", "}") else self._next(",", at)
            at += 1

    def _while(self, node: syntax.While) -> None:
        at = self._loop(node, "while")
        if node.step is not None:
            self.words[at].role = "step"
            at = self._match(at + 1) + 1
        self._branch(at, self._first(node))

    def _for(self, node: syntax.For) -> None:
        opening = self._loop(node, "for")
        closing = self._next("|", opening + 1)
        self.words[opening].role, self.words[closing].role = "open capture", "close capture"
        for at in range(opening, closing):
            self.words[at].role = "prefix" if self.words[at].kind == "*" else self.words[at].role
        self._branch(closing + 1, self._first(node))

    def _loop(self, node: syntax.While | syntax.For, word: str) -> int:
        first = self._first(node)
        if node.label is not None:
            self.words[first + 1].role = "label"
        return self._match(self._next(word, first) + 1) + 1

    def _break(self, node: syntax.Break | syntax.Continue) -> None:
        if node.label is not None:
            self.words[self._first(node) + 1].role = "jump"

    _continue = _break
