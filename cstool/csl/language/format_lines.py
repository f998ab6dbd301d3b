"""Lines of a formatted CSL file: first words, indents, blanks between words.

The lines of the author stay where the syntax lets them; only lines that are too long are parted. The result is made of
words and line ends alone, and those stay as they are when it is formatted again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cstool.csl.language.format_words import Word
from cstool.csl.language.parse_expressions import PRECEDENCE

WIDTH = 100
"""characters of a line without the comment at its end; a line that cannot be parted is longer"""
_INDENT = 2
_ASSIGNMENTS = frozenset(["=", "=>", *(f"{sign}=" for sign in "+ - * / % & ^ | << >> +% -% *%".split())])
_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
_LISTS = ("list", "tight list", "body")


def is_operator(word: Word) -> bool:
    """Whether it stands between two operands."""
    return word.kind in PRECEDENCE and word.role == "" and not word.kind.startswith("|")


def space_between(before: Word, word: Word) -> bool:
    """Whether a blank is between two words of a line."""
    left, right = before.kind, word.kind
    if "comment" in (left, right):
        return True
    if right in (",", ";", ".*", "...") or left in ("...", "("):
        return False
    if left == "{" or right == "}":
        is_empty = left == "{" and right == "}"
        return not is_empty and (before if left == "{" else word).role not in ("tight", "tight list")
    if right in (")", "]") or left == "[":
        return False
    if before.role in ("prefix", "open capture", "jump") or word.role == "close capture":
        return False
    if before.role == "type" and left in (")", "]", "fn"):
        return False
    if right == "." and word.role != "prefix":
        return left in (",", "comment")
    if left == ".":
        return False
    if right == ":":
        return word.role in ("jump", "step")
    if right == "(":
        return not (left in ("name", "builtin", ")", "]", "enum", ".*", "}") or before.role == "type")
    if right == "[":
        return word.role == "type" and left not in ("]", "*", "**")
    if right == "{":
        return word.role not in ("tight", "list", "tight list")
    return True


@dataclass(slots=True)
class _Open:
    """An open bracket: how far in its line is, the column behind it, whether a line ends behind it."""

    word: Word
    indent: int
    column: int
    hangs: bool


def _base(stack: Sequence[_Open]) -> int:
    """How far in the items of the innermost bracket are."""
    if not stack:
        return 0
    return stack[-1].indent + _INDENT if stack[-1].hangs else stack[-1].column


@dataclass(slots=True)
class Line:
    """A line: numbers of its words, how far in it is, its text, where its words end, and the comment at its end.

    One that goes on with what the line above began `continues`.
    """

    first: int
    behind: int
    indent: int
    text: str
    ends: list[int]
    comment: Word | None = None
    continues: bool = False


class Lines:
    """Lines of words; `broken` has the number of line ends before each word.

    Args:
        words: of `words_of`
    """

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.broken = [word.newlines for word in words]

    # --- where lines end ---

    def settle(self) -> None:
        """Part and join lines as the syntax wants it, and put commas at the ends of lists."""
        words, broken = self.words, self.broken
        for at, word in enumerate(words):
            before = words[at - 1] if at else None
            if before is not None and before.kind == "comment":
                broken[at] = max(broken[at], 1)
            elif word.kind != "comment" and before is not None and not self._may_break(at):
                broken[at] = 0
        for at, word in enumerate(words):
            if word.match > at:
                self._settle_bracket(at, word.match)
        for at, word in enumerate(words):
            if at and word.inside < 0 and (word.begins == "item" or word.kind == "end"):
                self._part(at)

    def _may_break(self, at: int) -> bool:
        before, word = self.words[at - 1], self.words[at]
        if word.kind in (",", ";"):
            return False
        if word.begins or word.kind == "end":
            return True
        if word.role == "block" and word.kind == "{":
            return False
        if word.kind == "else":
            return before.role != "block"
        return (
            before.kind in _OPENING
            or before.kind in (",", "->")
            or before.kind in _ASSIGNMENTS
            or word.kind in _CLOSING
            or is_operator(before)
            or is_operator(word)
            or (word.kind == "." and word.role == "" and before.kind != ",")
        )

    def _settle_bracket(self, opening: int, closing: int) -> None:
        words, broken = self.words, self.broken
        role = words[opening].role
        first = opening + 1
        if first == closing:
            broken[closing] = 0
            return
        if role in ("block", "body"):
            items = self._items(opening)
            parted = any(broken[first : closing + 1]) or (role == "block" and len(items) > 1)
            for at in [*items, closing] if parted else ():
                self._part(at)
        elif words[closing - 1].kind != "comment":
            broken[closing] = 1 if broken[first] or words[first].kind == "comment" else 0
        broken[closing] = min(broken[closing], 1)
        broken[first] = min(broken[first], 1)
        if role in _LISTS:
            last = next(at for at in range(closing - 1, opening - 1, -1) if words[at].kind != "comment")
            words[last].comma = bool(broken[closing]) and last > opening

    def _items(self, opening: int) -> list[int]:
        """Words that begin the items of a list or a block."""
        numbers = range(opening + 1, self.words[opening].match)
        return [at for at in numbers if self.words[at].begins == "item" and self.words[at].inside == opening]

    def _part(self, at: int) -> None:
        """Let a line end before a word, and before the comments of their own lines above it."""
        if not self.broken[at]:
            self.broken[at] = 1

    # --- the lines ---

    def lines(self) -> list[Line]:
        """The lines as they are now, empty ones left out."""
        found: list[Line] = []
        stack: list[_Open] = []
        starts: list[tuple[Line, int]] = []  # of each word: its line and column
        line = Line(0, 0, 0, "", [])
        for at, word in enumerate(self.words):
            is_first = not at or self.broken[at] > 0
            if word.kind in _CLOSING:
                closed = stack.pop()
            if is_first:
                line = Line(at, at, 0, "", [])
                line.indent = closed.indent if word.kind in _CLOSING else self._indent(line, stack, starts)
                line.text = " " * line.indent
                found.append(line)
            line.behind = at + 1
            if not is_first and space_between(self.words[at - 1], word) and word.kind != "comment":
                line.text += " "
            starts.append((line, len(line.text)))
            if word.kind == "comment" and not is_first:
                line.comment = word
            else:
                line.text += word.text + ("," if word.comma else "")
            line.ends.append(len(line.text))
            if word.kind in _OPENING:
                behind = len(line.text) + space_between(word, self.words[at + 1])
                has_statements = word.role in ("block", "body")
                indent = _base(stack) if has_statements and line.continues else line.indent
                stack.append(_Open(word, indent, behind, has_statements or self.broken[at + 1] > 0))
        return found

    def _indent(self, line: Line, stack: list[_Open], starts: list[tuple[Line, int]]) -> int:
        at = line.first
        while self.words[at].kind == "comment":
            at += 1
        word = self.words[at]
        base = _base(stack)
        if word.begins == "item" or word.role == "block" or word.kind in _CLOSING or word.kind == "end":
            return base
        if word.owner >= 0:
            its_line, column = starts[word.owner]
            begins_line = its_line.first == word.owner or self.words[its_line.first].kind in ("else", "}")
            return (its_line.indent if begins_line else column) + (_INDENT if word.begins == "branch" else 0)
        line.continues = True
        is_grouped = bool(stack) and stack[-1].word.role == "" and not stack[-1].hangs
        return base if is_grouped else base + _INDENT

    # --- lines that are too long ---

    def part_long_lines(self) -> None:
        """Part lines that are too long, until no more can be parted."""
        before = None
        while self.broken != before:
            before = list(self.broken)
            for line in self.lines():
                if len(line.text) > WIDTH and self.words[line.first].kind != "comment":
                    self._part_words(line, line.first, line.behind)
            self.settle()

    def _part_words(self, line: Line, first: int, behind: int) -> bool:
        """Part the words `first` to `behind` of a line outside brackets, or else in one of them."""
        words = self.words
        outer = list(self._outside(first, behind))
        fits = [at for at in outer if line.ends[at - line.first] <= WIDTH]
        commas = self._behind_commas(fits, behind)
        if commas:
            return self._part_items(commas)
        elses = [at for at in outer if words[at].kind == "else" and at > first and words[at - 1].role != "block"]
        if elses:
            return self._part_at(elses)
        operators = [at for at in fits if is_operator(words[at]) and at + 1 < behind]
        if operators:
            lowest = min(PRECEDENCE[words[at].kind] for at in operators)
            return self._part_at([[at for at in operators if PRECEDENCE[words[at].kind] == lowest][-1] + 1])
        brackets = [at for at in fits if words[at].kind in _OPENING and words[at].match > at + 1]
        blocks = [at for at in brackets if words[at].role == "block" and words[at].match < line.behind]
        if blocks:
            return self._part_at([blocks[-1] + 1])
        # The brackets of an index are short.
        for opening in sorted(brackets, key=lambda at: (words[at].kind != "[", at), reverse=True):
            if self._part_bracket(line, opening):
                return True
        equals = [at + 1 for at in fits if words[at].kind in _ASSIGNMENTS and at + 1 < behind]
        return bool(equals) and self._part_at(equals[-1:])

    def _outside(self, first: int, behind: int) -> Iterator[int]:
        """Words outside brackets that begin between two words."""
        at = first
        while at < behind:
            yield at
            at = self.words[at].match if self.words[at].match > at else at + 1

    def _behind_commas(self, numbers: list[int], behind: int) -> list[int]:
        words = self.words
        return [
            at + 1 for at in numbers if words[at].kind == "," and at + 1 < behind and words[at + 1].kind not in _CLOSING
        ]

    def _part_items(self, commas: list[int]) -> bool:
        """Part a list: each item on a line of its own, or as many as fit if all are names and numbers."""
        words = self.words
        inside = words[commas[0]].inside
        opening = words[inside] if inside >= 0 else None
        items = [at for at in commas if words[at].begins == "item"]
        hangs = opening is not None and self.broken[inside + 1] > 0
        if not items or opening is None or not hangs or self._is_plain(inside):
            return self._part_at(commas[-1:])
        return self._part_at(self._items(inside))

    def _is_plain(self, opening: int) -> bool:
        inner = self.words[opening + 1 : self.words[opening].match]
        return all(word.kind in ("name", "number", ",", "-") for word in inner)

    def _part_bracket(self, line: Line, opening: int) -> bool:
        words = self.words
        closing = words[opening].match
        if words[opening].role == "" and words[opening].kind == "(":
            return self._part_words(line, opening + 1, min(closing, line.behind)) or self._part_at([opening + 1])
        if closing >= line.behind:
            fits = [at for at in self._outside(opening + 1, line.behind) if line.ends[at - line.first] <= WIDTH]
            return self._part_at(self._behind_commas(fits, line.behind)[-1:] or [opening + 1])
        last = closing - 2 if words[closing - 1].kind == "," else closing - 1
        inner = words[last].match
        is_last_argument = words[opening].role == "call" and words[last].role in _LISTS and opening < inner < last - 1
        if is_last_argument and last < line.behind and line.ends[inner - line.first] <= WIDTH:
            # f(a, .{ ... }): the brackets around it stay.
            return self._part_bracket(line, inner)
        targets = [opening + 1]
        if words[opening].role == "list" and not self._is_plain(opening):
            targets += self._items(opening)
        return self._part_at(targets)

    def _part_at(self, targets: list[int]) -> bool:
        new = [at for at in targets if not self.broken[at]]
        for at in new:
            self.broken[at] = 1
        return bool(new)
