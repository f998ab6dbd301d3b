"""Tokens as bytes: the part of each in a text, put together to whole characters; texts that end it are looked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cstool.training.data import ByteTokenizer, FileTokenizer, Tokenizer

_HALF = "\ufffd"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_level() -> dict[str, int]:
    """Characters with which tokenizers of bytes write them: the byte of each.

    Source: Radford et al., GPT-2, encoder.py, bytes_to_unicode.
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + k): byte for k, byte in enumerate(others)}


class Spelling:
    """The bytes of the tokens of a tokenizer, each by itself.

    They are a help where several tokens make one character; a text is always as the tokenizer decodes it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def alone(self, token: int) -> bytes:
        """The bytes of a token, without the tokens before it."""
        if isinstance(self._tokenizer, ByteTokenizer):
            return bytes([token]) if token < 256 else _HALF.encode()
        words = self._words
        word = words[token] if token < len(words) else _HALF
        if token in self.special:
            return word.encode()
        if self._is_byte_level:
            return b"".join(bytes([self._letters[c]]) if c in self._letters else c.encode() for c in word)
        if (found := _BYTE.fullmatch(word)) is not None:
            return bytes([int(found[1], 16)])
        return word.replace("\u2581", " ").encode("utf-8", "replace")

    @cached_property
    def special(self) -> frozenset[int]:
        """Tokens that stand for no text: ends, begins, marks of turns."""
        if not isinstance(self._tokenizer, FileTokenizer):
            return frozenset({0})
        added = self._tokenizer.loaded.get_added_tokens_decoder().items()
        return frozenset(number for number, token in added if token.special)

    @cached_property
    def _words(self) -> list[str]:
        assert isinstance(self._tokenizer, FileTokenizer)
        return self._tokenizer.words()

    @cached_property
    def _letters(self) -> dict[str, int]:
        return _byte_level()

    @cached_property
    def _is_byte_level(self) -> bool:
        assert isinstance(self._tokenizer, FileTokenizer)
        return (
            "ByteLevel" in type(self._tokenizer.loaded.decoder).__name__
            or '"ByteLevel"' in (self._tokenizer.loaded.to_str().partition('"decoder"')[2].partition('"model"')[0])
        )


@dataclass(frozen=True)
class Spelled:
    """A token in a text.

    Args:
        token: its id
        place: among the tokens that followed the prompt
        content: its bytes in the text; of a character of several tokens a part of its bytes
    """

    token: int
    place: int
    content: bytes


@dataclass(frozen=True)
class Piece:
    """A piece of a text, of whole characters, and its tokens."""

    text: str
    tokens: tuple[Spelled, ...]
    is_end: bool = False
    """whether it is the token that ended the text, which adds nothing"""


class SpelledText:
    """The text that follows a prompt: pieces that are certain, without the text that ended it.

    The bytes of the tokens of all pieces are the bytes of the text.

    Args:
        tokenizer: of the tokens
        spelling: of the tokenizer
        prompt: tokens before it; how a token is written may depend on the one before
        stops: texts that end it and are no part of it
        whole_from: stops before so many tokens do not count
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        spelling: Spelling,
        prompt: Sequence[int],
        stops: Sequence[str] = (),
        whole_from: int = 0,
    ) -> None:
        self._tokenizer, self._spelling, self._stops, self._whole_from = tokenizer, spelling, stops, whole_from
        self._tokens = list(prompt[-1:])
        self._known = len(self._tokens)
        self._count = 0
        self._held: list[Piece] = []
        """pieces that may be the begin of a stop"""
        self.is_stopped = False

    def add(self, token: int) -> list[Piece]:
        """Take a token, and return the pieces that are certain with it."""
        self._tokens.append(token)
        self._count += 1
        before = self._tokenizer.decode(self._tokens[: self._known])
        now = self._tokenizer.decode(self._tokens)
        if len(now) < len(before) or now.endswith(_HALF):
            return []
        return self._grow(now[len(before) :])

    def finish(self) -> list[Piece]:
        """Return the pieces that were held back; nothing follows."""
        found = []
        if not self.is_stopped and len(self._tokens) > self._known:
            before = self._tokenizer.decode(self._tokens[: self._known])
            found = self._grow(self._tokenizer.decode(self._tokens)[len(before) :])
        found += self._held
        self._held = []
        return found

    def _grow(self, text: str) -> list[Piece]:
        tokens = self._tokens[self._known :]
        self._tokens = tokens
        self._known = len(tokens)
        first = self._count - len(tokens)
        contents = self._shares(tokens, text.encode("utf-8", "replace"))
        self._held.append(Piece(text, tuple(map(Spelled, tokens, range(first, self._count), contents))))
        return self._certain()

    def _shares(self, tokens: Sequence[int], content: bytes) -> list[bytes]:
        """Split the bytes of a piece among its tokens."""
        if len(tokens) == 1:
            return [content]
        alone = [self._spelling.alone(token) for token in tokens]
        if b"".join(alone) == content:
            return alone
        return [b""] * (len(tokens) - 1) + [content]

    def _certain(self) -> list[Piece]:
        if not self._stops or self._count <= self._whole_from:
            found, self._held = self._held, []
            return found
        waiting = "".join(piece.text for piece in self._held)
        places = [place for stop in self._stops if (place := waiting.find(stop)) >= 0]
        if places:
            self.is_stopped = True
            found, self._held = _first(self._held, min(places)), []
            return found
        sure = len(waiting) - max(overlap(waiting, stop) for stop in self._stops)
        found = []
        while self._held and len(self._held[0].text) <= sure:
            found.append(self._held.pop(0))
            sure -= len(found[-1].text)
        return found


def _first(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """The first characters of pieces; of the last token only its bytes in them."""
    found = []
    for piece in pieces:
        if count <= 0:
            break
        if len(piece.text) <= count:
            found.append(piece)
        else:
            text, tokens = piece.text[:count], []
            room = len(text.encode("utf-8", "replace"))
            for token in piece.tokens:
                if room > 0:
                    tokens.append(replace(token, content=token.content[:room]))
                room -= len(token.content)
            found.append(Piece(text, tuple(tokens)))
        count -= len(piece.text)
    return found


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of a text with which a stop begins [characters]."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
