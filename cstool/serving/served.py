"""The model that a server has, ready to be asked: its names, its tokenizer, its templates, its engine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cstool.foundation.errors import CheckpointError, DataError
from cstool.inference.model import InferenceModel
from cstool.model.params import DecoderParams
from cstool.serving.embeddings import Embeddings
from cstool.serving.engine import Engine
from cstool.serving.grammars import Grammars
from cstool.serving.refusals import Refused, changed
from cstool.serving.spelling import Spelling
from cstool.serving.tools import form_of
from cstool.training.data import Tokenizer, begun
from cstool.training.data.chat_templates import ChatTemplate


@dataclass(frozen=True)
class Limits:
    """Limits of requests, in bytes and seconds.

    Args:
        body_bytes: of a body
        body_s: for it to come
        headers_s: for the headers of a request to come
        write_s: for a client to read a part of its answer
        keep_alive_s: between two signs of life in a stream
        connections: at a time
        max_tokens: of a request that does not say it; None for the rest of the context in a chat, 16 elsewhere
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
        tokenizer: of its training data; None for a model that makes no text
        engine: makes text; None for a model that makes none
        embeddings: makes vectors
        name: of the model without adapters
        adapters: numbers of adapters by their names
        template: writes conversations; None where there can be none
        ends: tokens that end a text, and a turn
    """

    model: InferenceModel
    tokenizer: Tokenizer | None
    engine: Engine | None
    embeddings: Embeddings
    name: str
    adapters: Mapping[str, int] = field(default_factory=dict)
    template: ChatTemplate | None = None
    ends: frozenset[int] = frozenset()
    limits: Limits = field(default_factory=Limits)
    created: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self._file = _stamp(self.model.checkpoint)
        """of the checkpoint, as it was when it was read"""
        self.form = None if self.template is None else form_of(self.template)
        """of calls of tools"""
        self.preparing = ThreadPoolExecutor(1, "prepare")
        """makes tokens of requests: a template has one thread at a time"""

    @cached_property
    def spelling(self) -> Spelling:
        """The bytes of tokens."""
        return Spelling(self.needs_tokenizer())

    def has_changed(self) -> bool:
        """Whether the file of the checkpoint is another one now. Weights in memory stay as they were read."""
        return _stamp(self.model.checkpoint) != self._file

    def check_weights(self) -> None:
        """Check that a checkpoint from which weights stream is as it was opened.

        A file that was replaced stays open as it was; one that was written to is no longer the same.

        Raises:
            Refused: it was written to
        """
        try:
            self.model.stream.check_source()
        except CheckpointError as error:
            raise changed(error) from None

    def needs_tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            Refused: the model makes no text
        """
        if self.tokenizer is None:
            raise Refused(
                400, f"model: must be one that makes text, {self.name} makes vectors alone", "model", "no_text"
            )
        return self.tokenizer

    @cached_property
    def grammars(self) -> Grammars:
        """Makes grammars of answers."""
        return Grammars(self.spelling, self.needs_tokenizer().vocab_size, self.vocab_size, self.ends)

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
            self.needs_tokenizer()
        assert self.engine is not None
        return self.engine

    def encode(self, text: str, param: str, *, begins: bool | None = None) -> list[int]:
        """Return the tokens of a text.

        Args:
            param: the field that has it
            begins: whether they begin with the tokens of the tokenizer's template; None for as its data set does

        Raises:
            Refused: a character has no token
        """
        tokenizer = self.needs_tokenizer()
        try:
            tokens = tokenizer.encode(text)
        except DataError as error:
            raise Refused(400, f"{param}: {error.message}", param, "invalid_value") from None
        if tokenizer.begins_texts if begins is None else begins:
            return begun(tokenizer.begin, tokens)
        return tokens

    def tokens(self, given: str | Sequence[int], param: str) -> list[int]:
        """Return the tokens of a text, or tokens as they are given, if the model knows them; else raise Refused."""
        found = self.encode(given, param) if isinstance(given, str) else list(given)
        self.check_known(found, param)
        return found

    def check_known(self, tokens: Sequence[int], param: str) -> None:
        """Check that the model has some tokens, or raise Refused."""
        if tokens and (most := max(tokens)) >= self.vocab_size:
            raise Refused(
                400, f"{param}: tokens must be below the {self.vocab_size:,} of the model, got {most:,}", param
            )


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """Marks of a file; another one in its place has others."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
