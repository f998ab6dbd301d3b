"""The model that a server has, ready to be asked: its names, its tokenizer, its templates, its engine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cstool.foundation.errors import DataError
from cstool.inference.model import InferenceModel
from cstool.model.params import DecoderParams
from cstool.serving.engine import Engine
from cstool.serving.grammars import Grammars
from cstool.serving.refusals import Refused
from cstool.serving.spelling import Spelling
from cstool.serving.tools import form_of
from cstool.training.data import Tokenizer, begun
from cstool.training.data.chat_templates import ChatTemplate


@dataclass(frozen=True)
class Limits:
    """What a request may be, and how long things may take.

    Args:
        body_bytes: of a body
        body_s: for it to come
        headers_s: for the headers of a request to come
        write_s: for a client to read what it was sent
        keep_alive_s: between two signs of life in a stream
        connections: at a time
        max_tokens: of a request that does not say it; None for the rest of the context in a chat, 16 elsewhere
        prediction: most tokens of a prompt plus answer; the context of the model where None
    """

    body_bytes: int = 2**24
    body_s: float = 30.0
    headers_s: float = 10.0
    write_s: float = 60.0
    keep_alive_s: float = 10.0
    connections: int = 1024
    max_tokens: int | None = None


@dataclass
class Served:
    """A model.

    Args:
        model: that is open
        tokenizer: of its training data
        engine: makes text; None for a model that makes none
        name: of the model without adapters
        adapters: numbers of adapters by their names
        template: writes conversations; None where there can be none
        ends: tokens that end a text, and a turn
        sampling: values of the params: temperature, top_k and top_p where they have them
    """

    model: InferenceModel
    tokenizer: Tokenizer
    engine: Engine | None
    name: str
    adapters: Mapping[str, int] = field(default_factory=dict)
    template: ChatTemplate | None = None
    ends: frozenset[int] = frozenset()
    limits: Limits = field(default_factory=Limits)
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.spelling = Spelling(self.tokenizer)
        self.form = None if self.template is None else form_of(self.template)
        """of calls of tools"""
        self.preparing = ThreadPoolExecutor(1, "prepare")
        """makes tokens of requests: a template has one thread at a time"""

    @cached_property
    def grammars(self) -> Grammars:
        """Makes grammars of answers."""
        return Grammars(self.spelling, self.tokenizer.vocab_size, self.vocab_size, self.ends)

    @cached_property
    def fingerprint(self) -> str:
        """A word for the weights: their checkpoint and its step."""
        text = f"{self.model.params.path} {self.model.step} {self.model.precision}"
        return "cs_" + hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def special_texts(self) -> dict[int, str]:
        """Texts of the special tokens, by their numbers."""
        return {number: self.spelling.alone(number).decode("utf-8", "replace") for number in self.spelling.special}

    @property
    def section(self) -> DecoderParams:
        """The model section of the params."""
        assert isinstance(self.model.params.model, DecoderParams)
        return self.model.params.model

    @property
    def vocab_size(self) -> int:
        """Tokens of the model."""
        return self.section.vocab_size

    @property
    def context(self) -> int:
        """Most tokens of a prompt and its answer together."""
        return self.engine.capacity if self.engine is not None else self.section.max_position_embeddings

    def adapter(self, named: str) -> int:
        """The number of the adapter with which a model of this name answers.

        Raises:
            Refused: there is no such model
        """
        if named == self.name:
            return 0
        if named not in self.adapters:
            raise Refused(
                404, f"model: must be one of {', '.join(self.names)}, got {named[:100]!r}", "model", "model_not_found"
            )
        return self.adapters[named]

    @property
    def names(self) -> list[str]:
        """Names of the model, and of it with each adapter."""
        return [self.name, *self.adapters]

    def description(self, named: str) -> dict[str, Any]:
        """A model as `/v1/models` has it."""
        found: dict[str, Any] = {"id": named, "object": "model", "created": self.created, "owned_by": "cstool"}
        if self.engine is not None:
            found["max_model_len"] = self.context
        if named != self.name:
            found["parent"] = self.name
        return found

    def needs_engine(self) -> Engine:
        """The engine.

        Raises:
            Refused: the model makes no text
        """
        if self.engine is None:
            raise Refused(
                400, f"model: must be one that makes text, {self.name} makes vectors alone", "model", "no_text"
            )
        return self.engine

    def encode(self, text: str, param: str, *, begins: bool | None = None) -> list[int]:
        """Return the tokens of a text.

        Args:
            param: the field that has it
            begins: whether they begin with the tokens of the tokenizer's template; None for as its data set does

        Raises:
            Refused: a character has no token
        """
        try:
            tokens = self.tokenizer.encode(text)
        except DataError as error:
            raise Refused(400, f"{param}: {error.message}", param, "invalid_value") from None
        if self.tokenizer.begins_texts if begins is None else begins:
            return begun(self.tokenizer.begin, tokens)
        return tokens

    def check_known(self, tokens: Sequence[int], param: str) -> None:
        """Check that the model has some tokens, or raise Refused."""
        if tokens and (most := max(tokens)) >= self.vocab_size:
            raise Refused(
                400, f"{param}: tokens must be below the {self.vocab_size:,} of the model, got {most:,}", param
            )
