"""`/v1/embeddings`: vectors of texts, by an encoder or by the states of a decoder.

A vector depends on its own text alone, to the bit. Texts go through the model in a thread beside the engine's.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cstool.foundation.errors import CheckpointError, CstoolError
from cstool.inference.model import InferenceModel
from cstool.inference.passes import PASS_ROWS, check_finite
from cstool.inference.team import Team
from cstool.inference.verbs.asking import ask, plan_texts
from cstool.inference.walk import Walks
from cstool.model.params import DprParams
from cstool.serving.refusals import Refused, busy, changed
from cstool.serving.schema import EmbeddingRequest
from cstool.training.kernels.cached_attention import News

Vector = NDArray[np.float32]
MOST_WAITING = 64
"""requests for vectors"""


class Embedded(NamedTuple):
    """Vectors of texts.

    Args:
        vectors: (width,) float32 of each
        tokens: of all texts
    """

    vectors: Sequence[Vector]
    tokens: int


class Embedder(Protocol):
    """Makes vectors."""

    poolings: Sequence[str]
    """ways to make them, the usual one first"""

    def embed(self, texts: Sequence[str | Sequence[int]], pooling: str) -> Embedded:
        """Return the vectors of texts, or of tokens.

        Raises:
            Refused: a text cannot be
        """
        ...


def texts_together(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of texts that go through the model together, the shortest first.

    Each takes memory for the tokens of the longest, together for `PASS_ROWS` at most. A longer text goes alone.

    Args:
        lengths: tokens of each text
    """
    together: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if together and (len(together) + 1) * lengths[number] > PASS_ROWS:
            yield together
            together = []
        together.append(number)
    yield together


class DecoderEmbedder:
    """Vectors by the states of a decoder behind its last norm.

    Args:
        model: that is open
        context: most tokens of a text
        encode: makes tokens of a text, or checks tokens, with the name of the field
    """

    poolings: Sequence[str] = ("mean", "last")

    def __init__(
        self, model: InferenceModel, context: int, encode: Callable[[str | Sequence[int], str], list[int]]
    ) -> None:
        self._model, self._context, self._encode = model, context, encode
        # A team of its own: the engine's is at work.
        self._walks = Walks(model.graph, model.stream, Team(1), model.executor)

    def embed(self, texts: Sequence[str | Sequence[int]], pooling: str) -> Embedded:
        """See `Embedder.embed`."""
        if not self._model.stream.is_resident:
            raise Refused(400, "model: must have its weights in memory for vectors, they are in a file", "model")
        all_tokens = []
        for number, text in enumerate(texts):
            param = f"input[{number}]"
            tokens = self._encode(text, param)
            if not 0 < len(tokens) <= self._context:
                rule = f"must have 1 to {self._context:,} tokens, got {len(tokens):,}"
                raise Refused(400, f"{param}: {rule}", param, "context_length_exceeded")
            all_tokens.append(tokens)
        vectors: dict[int, Vector] = {}
        for numbers in texts_together([len(tokens) for tokens in all_tokens]):
            vectors |= zip(numbers, self._vectors([all_tokens[n] for n in numbers], pooling), strict=True)
        return Embedded([vectors[number] for number in range(len(all_tokens))], sum(map(len, all_tokens)))

    def _vectors(self, texts: Sequence[Sequence[int]], pooling: str) -> list[Vector]:
        """The vectors of texts that fit a pass together, or of one text by several passes."""
        walk = self._walks.walk(len(texts), max(map(len, texts)))
        slots, totals = [walk.memory.open() for _ in texts], [np.zeros(1) for _ in texts]
        found: list[Vector] = [np.zeros(0, np.float32) for _ in texts]
        for start in range(0, len(texts[-1]), PASS_ROWS):
            parts = [tokens[start : start + PASS_ROWS] for tokens in texts]
            counts = [len(part) for part in parts]
            ids = np.array([token for part in parts for token in part], np.int32)
            states = walk.states({walk.ids: ids}, News.of(slots, counts, [start] * len(texts)))
            for number, rows in enumerate(np.split(states, np.cumsum(counts)[:-1])):
                totals[number] = totals[number] + rows.sum(axis=0, dtype=np.float64)
                found[number] = rows[-1].copy()
        if pooling == "mean":
            found = [(total / len(tokens)).astype(np.float32) for total, tokens in zip(totals, texts, strict=True)]
        for vector in found:
            check_finite(vector, "input: the vector")
        return found


class EncoderEmbedder:
    """Vectors of an encoder.

    Args:
        model: that is open
        tokenizer: a vocabulary; None for the one in the params
    """

    def __init__(self, model: InferenceModel, tokenizer: str | None) -> None:
        self._model, self._tokenizer = model, tokenizer
        is_pair = isinstance(model.params.model, DprParams)
        self.poolings: Sequence[str] = ("question", "context") if is_pair else ("mean", "first", "pooled")

    def embed(self, texts: Sequence[str | Sequence[int]], pooling: str) -> Embedded:
        """See `Embedder.embed`."""
        words = [text for text in texts if isinstance(text, str)]
        if len(words) < len(texts):
            raise Refused(400, "input: must be texts for an encoder, got tokens", "input", "invalid_value")
        try:
            plan = plan_texts(self._model.params, words, self._tokenizer, embed=pooling)
            found = ask(self._model, words, embed=pooling, tokenizer=self._tokenizer).embeddings
        except CheckpointError as error:
            raise changed(error) from None
        except CstoolError as error:
            raise Refused(400, f"input: {error.message}", "input", "invalid_value") from None
        return Embedded(list(found), sum(len(text.tokens) for text in plan.encoded))


class Embeddings:
    """Answers requests for vectors, one after the other.

    Args:
        embedder: makes them
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._thread = ThreadPoolExecutor(1, "embed")
        self._waiting = 0

    async def answer(self, request: EmbeddingRequest) -> dict[str, Any]:
        """Return the answer of a request.

        Raises:
            Refused: it cannot be, or too many wait
        """
        given: Any = request.input
        texts = [given] if isinstance(given, str) or isinstance(given[0], int) else given
        pooling = request.pooling or self._embedder.poolings[0]
        if pooling not in self._embedder.poolings:
            known = " or ".join(self._embedder.poolings)
            raise Refused(400, f"pooling: must be {known} for this model, got {pooling}", "pooling", "invalid_value")
        if self._waiting >= MOST_WAITING:
            raise busy(is_ending=False)
        self._waiting += 1
        try:
            work = asyncio.get_running_loop().run_in_executor(self._thread, self._embedder.embed, texts, pooling)
            found = await work
        finally:
            self._waiting -= 1
        width = len(found.vectors[0])
        if request.dimensions not in (None, width):
            rule = f"must be {width}, the width of the model, or left out, got {request.dimensions}"
            raise Refused(400, f"dimensions: {rule}", "dimensions", "invalid_value")
        shown = _base64 if request.encoding_format == "base64" else _floats
        data = [
            {"object": "embedding", "index": number, "embedding": shown(vector)}
            for number, vector in enumerate(found.vectors)
        ]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return {"object": "list", "data": data, "model": request.model, "usage": usage}


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _floats(vector: Vector) -> list[float]:
    return [float(value) for value in vector]
