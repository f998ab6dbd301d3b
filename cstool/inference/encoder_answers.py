"""Answers of an encoder: tokens for masks, classes, sentences to keep, or vectors; and its speed."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Choice:
    """A token for a mask."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text whose masks are filled in."""

    prompt: str
    pair: str | None
    masks: list[list[Choice]]
    """for each mask the likeliest tokens, the likeliest first"""
    text: str
    """the prompt with the likeliest token in place of each mask"""
    follows: float | None = None
    """the probability that the second text follows the first, where there are two and the model has learned it"""

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        yield self.text
        for number, choices in enumerate(self.masks, start=1):
            said = ", ".join(f"{choice.token.strip()} {choice.probability:.4f}" for choice in choices)
            yield f"  mask {number}: {said}"
        if self.follows is not None:
            yield f"  the second text follows the first with probability {self.follows:.4f}"


@dataclass(frozen=True)
class Classified:
    """The class of a text, or of two."""

    prompt: str
    pair: str | None
    label: str
    probabilities: dict[str, float]

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        said = ", ".join(f"{label} {share:.4f}" for label, share in self.probabilities.items())
        yield f"{self.label}  ({said})"


@dataclass(frozen=True)
class Word:
    """A word and its class, taken from its first token."""

    word: str
    label: str
    probability: float


@dataclass(frozen=True)
class Tagged:
    """A text with a class for each word."""

    prompt: str
    words: list[Word]

    def lines(self) -> Iterator[str]:
        """Yield it as text, a word on each line."""
        width = max(len(word.word) for word in self.words)
        for word in self.words:
            yield f"{word.word:{width}}  {word.label} {word.probability:.4f}"


@dataclass(frozen=True)
class Sentence:
    """A sentence, and whether it is one of the summary."""

    sentence: str
    is_chosen: bool
    probability: float
    """probability of being in the summary"""


@dataclass(frozen=True)
class Summarized:
    """A text with its sentences."""

    prompt: str
    sentences: list[Sentence]
    summary: str
    """the sentences that were chosen, in their order"""

    def lines(self) -> Iterator[str]:
        """Yield it as text, a sentence on each line, chosen ones with a star."""
        for sentence in self.sentences:
            yield f"{'*' if sentence.is_chosen else ' '} {sentence.probability:.4f}  {sentence.sentence}"


@dataclass(frozen=True)
class Embedded:
    """A text as a vector."""

    prompt: str
    pair: str | None
    embedding: list[float]

    def lines(self) -> Iterator[str]:
        """Yield it as text, in one line."""
        yield " ".join(f"{number:.6g}" for number in self.embedding)


EncoderAnswer = Filled | Classified | Tagged | Summarized | Embedded


@dataclass
class EncoderSpeed:
    """Measured on this host."""

    texts: int = 0
    tokens: int = 0
    passes: int = 0
    seconds: float = 0.0
    tokens_per_s: float = 0.0
    streamed_bytes: int = 0
    weights: str = "resident"
    """resident: in memory; streamed: from a file or other ranks, in every pass"""
    precision: str = "float32"
    nodes: int = 1
    """ranks that keep weights"""


@dataclass(frozen=True)
class EncoderAnswers:
    """Answers of an encoder to texts."""

    answers: list[EncoderAnswer]
    speed: EncoderSpeed = field(default_factory=EncoderSpeed)

    @property
    def embeddings(self) -> np.ndarray[Any, Any]:
        """The vectors of all texts, (n, width) float32, where these were asked for."""
        return np.array([found.embedding for found in self.answers if isinstance(found, Embedded)], np.float32)

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"answers": [asdict(found) for found in self.answers], "host": asdict(self.speed)}
