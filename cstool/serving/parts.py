"""Parts of an answer: thoughts, text, and calls of tools, by the marks that the model writes around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cstool.serving.spelling import Piece, overlap
from cstool.serving.tools import Call, ToolForm

THINK, THOUGHT = "<think>", "</think>"


@dataclass(frozen=True)
class Part:
    """A part, or as much of it as is certain.

    Args:
        kind: of the part
        pieces: of its text
        calls: of tools
    """

    kind: Literal["content", "reasoning", "calls"]
    pieces: tuple[Piece, ...] = ()
    calls: tuple[Call, ...] = ()

    @property
    def text(self) -> str:
        """Of its pieces."""
        return "".join(piece.text for piece in self.pieces)


class Divider:
    """Divides the text of an answer.

    Args:
        thinks: whether the model may write thoughts first; "inside" if it is in them from the first token on
        form: of calls of tools; None where text is all there is
        many: whether more than one call is wanted
    """

    def __init__(self, thinks: Literal["no", "may", "inside"], form: ToolForm | None, *, many: bool = True) -> None:
        self._state = {"no": "text", "may": "begin", "inside": "thoughts"}[thinks]
        self._form, self._many = form, many
        self._held: list[Piece] = []
        self._is_at_begin = True
        """whether nothing but white space of the text was there"""
        self.calls = 0
        """found so far"""
        self.reasoning_tokens = 0

    def take(self, pieces: Sequence[Piece]) -> list[Part]:
        """Take pieces, and return the parts that are certain."""
        found: list[Part] = []
        self._held += [piece for piece in pieces if not piece.is_end]
        while True:
            state = self._state
            found += getattr(self, f"_{state}")()
            if state == self._state:
                return found

    def finish(self) -> list[Part]:
        """Return the parts that were held back; nothing follows."""
        text, pieces = _text(self._held), tuple(self._held)
        self._held = []
        if not pieces:
            return []
        if self._state == "call" and self._form is not None:
            calls = self._form.calls_of(text)
            if calls:
                return self._called(calls)
        if self._state == "thoughts":
            return [self._thought(pieces)]
        return [Part("content", pieces)]

    def _begin(self) -> list[Part]:
        """Before anything: thoughts, or text."""
        text = _text(self._held)
        core = text.lstrip()
        if core.startswith(THINK):
            self._held = _cut(self._held, len(text) - len(core) + len(THINK))[1]
            self._state = "thoughts"
        elif core and not THINK.startswith(core):
            self._state = "text"
        return []

    def _thoughts(self) -> list[Part]:
        text = _text(self._held)
        place = text.find(THOUGHT)
        if place >= 0:
            before, rest = _cut(self._held, place)
            self._held = _cut(rest, len(THOUGHT))[1]
            self._state = "space"
            return [self._thought(tuple(before))] if before else []
        sure = self._sure(THOUGHT)
        return [self._thought(tuple(sure))] if sure else []

    def _thought(self, pieces: tuple[Piece, ...]) -> Part:
        self.reasoning_tokens += sum(len(piece.tokens) for piece in pieces)
        return Part("reasoning", pieces)

    def _space(self) -> list[Part]:
        """White space behind thoughts, which belongs to neither."""
        text = _text(self._held)
        core = text.lstrip()
        self._held = _cut(self._held, len(text) - len(core))[1]
        if core:
            self._state = "text"
        return []

    def _text(self) -> list[Part]:
        form = self._form
        if form is None:
            pieces, self._held = tuple(self._held), []
            return [Part("content", pieces)] if pieces else []
        text = _text(self._held)
        if form.begins_text:
            # The whole text is a call, or none is.
            core = text.lstrip()
            if not self._is_at_begin:
                pieces, self._held = tuple(self._held), []
                return [Part("content", pieces)] if pieces else []
            if any(core.startswith(begin) for begin in form.begins):
                self._state = "call"
            elif core and not any(begin.startswith(core) for begin in form.begins):
                self._is_at_begin = False
                return self._text()
            return []
        (begin,) = form.begins
        place = text.find(begin)
        if place >= 0:
            before, rest = _cut(self._held, place)
            self._held = _cut(rest, len(begin))[1]
            self._state = "call"
            return [Part("content", tuple(before))] if before and _text(before).strip() else []
        sure = self._sure(begin)
        return [Part("content", tuple(sure))] if sure else []

    def _call(self) -> list[Part]:
        form = self._form
        assert form is not None
        if form.end is None:
            return []
        text = _text(self._held)
        place = text.find(form.end)
        if place < 0:
            return []
        inside, rest = _cut(self._held, place)
        self._held = _cut(rest, len(form.end))[1]
        self._state = "space"
        if calls := form.calls_of(_text(inside)):
            return self._called(calls)
        return [Part("content", tuple(inside))]

    def _called(self, calls: Sequence[Call]) -> list[Part]:
        wanted = calls if self._many else calls[: max(0, 1 - self.calls)]
        self.calls += len(wanted)
        return [Part("calls", calls=tuple(wanted))] if wanted else []

    def _sure(self, mark: str) -> list[Piece]:
        """Take out the pieces that are not the begin of a mark."""
        text = _text(self._held)
        sure, found = len(text) - overlap(text, mark), []
        while self._held and len(self._held[0].text) <= sure:
            found.append(self._held.pop(0))
            sure -= len(found[-1].text)
        return found


def _text(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _cut(pieces: Sequence[Piece], count: int) -> tuple[list[Piece], list[Piece]]:
    """Part pieces behind so many characters; a token across the border is in both, with its bytes there."""
    first: list[Piece] = []
    for number, piece in enumerate(pieces):
        if count <= 0:
            return first, list(pieces[number:])
        if len(piece.text) <= count:
            first.append(piece)
            count -= len(piece.text)
            continue
        room = len(piece.text[:count].encode("utf-8", "replace"))
        before, behind = [], []
        for token in piece.tokens:
            size = len(token.content)
            if room > 0:
                before.append(replace(token, content=token.content[:room]))
            if size > room:
                behind.append(replace(token, content=token.content[max(0, room) :]))
            room -= size
        first.append(Piece(piece.text[:count], tuple(before)))
        return first, [Piece(piece.text[count:], tuple(behind)), *pieces[number + 1 :]]
    return first, []
