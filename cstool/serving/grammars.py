"""Grammars of answers: which tokens may follow, so that an answer is JSON of a schema or a call of a tool.

The package llguidance reads the grammars. It knows tokens by their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cstool.serving.endless import check_ends
from cstool.serving.refusals import Refused
from cstool.serving.spelling import Spelling

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

JSON_OPTIONS = {"whitespace_pattern": r"[ \n\t]{0,8}"}
"""white space between the parts of JSON is bounded, so that every answer comes to its end"""


class AnswerGrammar:
    """The grammar of one answer: a `cstool.inference.sequences.Grammar`, which never raises.

    Args:
        matcher: of llguidance, at its begin
        words: of a mask
    """

    def __init__(self, matcher: LLMatcher, words: int) -> None:
        self._matcher = matcher
        self._all = np.full(words, 0xFFFFFFFF, np.uint32)
        self.fault: str | None = None
        """why it could not go on; all tokens are allowed then"""

    @property
    def is_over(self) -> bool:
        """Whether the text is whole, and nothing may follow."""
        return bool(self._matcher.is_stopped())

    def allowed(self, drafts: Sequence[int]) -> list[NDArray[np.uint32]]:
        """See `Grammar.allowed`."""
        if self.fault is not None:
            return [self._all]
        if (mask := _mask(self._matcher)) is None:
            self.fault = _told(self._matcher) or "no token may follow"
            return [self._all]
        found = [mask]
        # A fault behind a draft is none of this text, so drafts are tried on a copy.
        ahead = self._matcher.deep_copy() if drafts else None
        for draft in drafts:
            assert ahead is not None
            if not ahead.try_consume_tokens([draft]) or ahead.is_stopped() or (mask := _mask(ahead)) is None:
                break
            found.append(mask)
        return found

    def take(self, token: int) -> None:
        """See `Grammar.take`."""
        if self.fault is None and not self._matcher.consume_token(token):
            self.fault = _told(self._matcher) or f"token {token} may not follow"


def _mask(matcher: LLMatcher) -> NDArray[np.uint32] | None:
    """The tokens that may follow; None where none may, or where the grammar cannot go on."""
    found = np.frombuffer(matcher.compute_bitmask(), np.uint32)
    return found if found.any() and not matcher.is_error() else None


def _told(matcher: LLMatcher) -> str:
    """Why a matcher cannot go on, without the state that the library appends; empty where it can."""
    return " ".join(matcher.get_error().partition("\n<state>")[0].split())[:300]


class _Words:
    """Tokens as llguidance asks for them."""

    def __init__(self, tokens: list[bytes], special: Collection[int], end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id, self.bos_token_id = tokens, list(special), end, None

    def __call__(self, text: bytes | str) -> list[int]:
        """Return some tokens of a text; the tokenizer may give others."""
        content = text.encode() if isinstance(text, str) else text
        by_content = {word: number for number, word in enumerate(self.tokens) if word}
        longest = max(map(len, by_content))
        found, place = [], 0
        while place < len(content):
            for size in range(min(longest, len(content) - place), 0, -1):
                if (number := by_content.get(content[place : place + size])) is not None:
                    found.append(number)
                    break
            place += size
        return found


class Grammars:
    """Makes grammars for the tokens of a model.

    Args:
        spelling: of the tokenizer
        known: tokens of the tokenizer
        vocab_size: tokens of the model
        ends: tokens that end a text
    """

    def __init__(self, spelling: Spelling, known: int, vocab_size: int, ends: Collection[int]) -> None:
        self._spelling, self._known, self._vocab_size, self._ends = spelling, known, vocab_size, sorted(ends)
        self._loaded: LLTokenizer | None = None

    @property
    def _tokenizer(self) -> LLTokenizer:
        """Made with the first grammar: it takes a second for many tokens."""
        if self._loaded is None:
            try:
                from llguidance import LLTokenizer, TokenizerWrapper
            except ModuleNotFoundError:
                hint = "pip install 'cstool[serve]' where the server is"
                raise Refused(400, f"grammars need llguidance, which is not installed: {hint}") from None
            known = min(self._known, self._vocab_size)
            words = [self._spelling.alone(token) for token in range(known)] + [b""] * (self._vocab_size - known)
            ends = self._ends or [len(words)]
            if not self._ends:
                # A model without such a token ends where its grammar does.
                words.append(b"<end>")
            special = {*self._spelling.special, *ends}
            self._loaded = LLTokenizer(TokenizerWrapper(_Words(words, special, ends[0])), eos_token=ends)
        return self._loaded

    def of_schema(self, schema: dict[str, Any], param: str) -> Callable[[], AnswerGrammar]:
        """Return a maker of grammars for JSON of a schema.

        Args:
            param: the field that has it

        Raises:
            Refused: the schema cannot be, or no text is as it says
        """
        from_schema = self._matcher_type().grammar_from_json_schema
        try:
            check_ends(schema, param)
            grammar = from_schema(json.dumps(schema), overrides=JSON_OPTIONS)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"{param}: must be a JSON schema, got: {error}", param, "invalid_schema") from None
        return self._maker(grammar, param)

    def of_lark(self, grammar: str, param: str) -> Callable[[], AnswerGrammar]:
        """Return a maker of grammars, by a text of the language of Lark; see `of_schema`."""
        return self._maker(self._matcher_type().grammar_from_lark(grammar), param)

    def _matcher_type(self) -> Any:
        assert self._tokenizer is not None
        from llguidance import LLMatcher

        return LLMatcher

    def _maker(self, grammar: str, param: str) -> Callable[[], AnswerGrammar]:
        first = self._matcher_type()(self._tokenizer, grammar, log_level=0)
        fault = _told(first)
        if not fault and _mask(first) is None:
            fault = "no text is as it says"
        if fault:
            rule = f"must be a JSON schema that texts can have, got: {fault}"
            raise Refused(400, f"{param}: {rule}", param, "invalid_schema")
        words = -(-self._vocab_size // 32)
        return lambda: AnswerGrammar(first.deep_copy(), words)
