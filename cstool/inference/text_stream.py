"""Text as tokens come: only whole characters, and nothing that may turn out to be the begin of a stop text."""

from collections.abc import Sequence

from cstool.training.data import Tokenizer

_HALF = "\ufffd"
"""at the end of a text, it may be the first bytes of a character"""


class TextStream:
    """The text that follows a prompt.

    Args:
        tokenizer: of the tokens
        prompt: tokens before it; how a token is written may depend on the one before
        stops: texts that end it and are no part of it
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        # The last token of the prompt is where decoding begins, so that all that is decoded again is a few tokens.
        self._tokens = list(prompt[-1:])
        self._known = len(self._tokens)
        """number of these tokens whose text is out"""
        self._held = ""
        """text that may be the begin of a stop"""
        self.text = ""
        """all text so far"""
        self.is_stopped = False

    def add(self, token: int) -> str:
        """Take a token, and return the text that is certain with it."""
        self._tokens.append(token)
        before = self._tokenizer.decode(self._tokens[: self._known])
        now = self._tokenizer.decode(self._tokens)
        if len(now) <= len(before) or now.endswith(_HALF):
            return ""
        self._tokens = self._tokens[self._known :]
        self._known = len(self._tokens)
        return self._take(now[len(before) :])

    def finish(self) -> str:
        """The text that was held back; nothing follows."""
        before = self._tokenizer.decode(self._tokens[: self._known])
        rest = "" if self.is_stopped else self._take(self._tokenizer.decode(self._tokens)[len(before) :])
        rest += self._held
        self.text += self._held
        self._held = ""
        return rest

    def _take(self, new: str) -> str:
        waiting = self._held + new
        found = [place for stop in self._stops if (place := waiting.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            sure, self._held = waiting[: min(found)], ""
        else:
            begun = max((_overlap(waiting, stop) for stop in self._stops), default=0)
            sure, self._held = waiting[: len(waiting) - begun], waiting[len(waiting) - begun :]
        self.text += sure
        return sure


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of a text with which a stop begins [characters]."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
