"""Texts that go on from prompts: tokens in and out, batch by batch, with times."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cstool.inference.beams import Hypothesis, search
from cstool.inference.generate import generate
from cstool.inference.model import InferenceModel
from cstool.inference.prompts import encode_prompts, tokens_that_fit
from cstool.inference.request import Request, generator_of
from cstool.inference.source import walk_from
from cstool.inference.text_stream import TextStream
from cstool.model.params import DecoderParams
from cstool.training.data import PairTokenizer, Tokenizer

MOST_AT_ONCE = 32
"""default number of prompts that are answered together; more make each of them wait longer"""

Show = Callable[[int, str], None]
"""called with the number of a prompt and a piece of text that follows it"""


@dataclass(frozen=True)
class Completion:
    """Continuation of a prompt."""

    prompt: str
    text: str
    """text without the prompt, and without the text or token that ended it"""
    tokens: list[int]
    """all chosen tokens, with the tokens that ended the text"""
    prompt_tokens: int
    finish_reason: str
    """stop (a text), end_of_text (the token between documents), length (max_tokens), context (no position is left),
    interrupted"""


@dataclass
class Speed:
    """Measured on this host."""

    prompt_tokens: int = 0
    tokens: int = 0
    passes: int = 0
    first_token_s: float = 0.0
    """from the begin of a batch to the first token of its last prompt, the mean over batches [s]"""
    seconds: float = 0.0
    """time from the first prompt's first pass to the last token [s]"""
    tokens_per_s: float = 0.0
    """rate of the tokens after the first ones, all sequences together"""
    kv_cache_bytes: int = 0
    streamed_bytes: int = 0
    """bytes of weights; in memory they are read where they are, and count once"""
    weights: str = "resident"
    """resident: in memory; streamed: from a file or other ranks, in every pass"""
    precision: str = "float32"
    """of the weights of products: float32 or bfloat16"""
    nodes: int = 1
    """ranks that keep weights"""
    arrived_bytes: int = 0
    """bytes of weights from other ranks"""

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON; of one rank without the entries of several ranks."""
        found = asdict(self)
        if self.nodes == 1:
            del found["nodes"], found["arrived_bytes"]
        return found


@dataclass(frozen=True)
class Answers:
    """Answers of a model to prompts."""

    completions: list[Completion]
    speed: Speed
    goes_on: bool = True
    """whether a text goes on from its prompt; an encoder-decoder writes a text of its own"""

    @property
    def texts(self) -> list[str]:
        """Each prompt with its continuation; of an encoder-decoder its text for each."""
        return [each.prompt + each.text if self.goes_on else each.text for each in self.completions]

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"completions": [asdict(each) for each in self.completions], "host": self.speed.as_dict()}


def answer(
    model: InferenceModel,
    tokenizer: Tokenizer,
    request: Request,
    *,
    encoded: Sequence[Sequence[int]] | None = None,
    show: Show = lambda prompt, text: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Answers:
    """Let a model go on from prompts.

    Args:
        model: that generates text
        tokenizer: of the model's training data; of an encoder-decoder a `PairTokenizer`
        request: prompts and options
        encoded: of `encode_prompts`, where that was done before
        show: is told pieces of text as they come
        stopped: asked after each token; True ends everything, with the texts so far

    Raises:
        InferenceError: the model is none that generates, or a prompt does not fit it
        DataError: the tokenizer has no tokens for a prompt
        NonFiniteError: the model does not give finite logits
    """
    section = generator_of(model.params.model)
    prompts = encode_prompts(section, tokenizer, request) if encoded is None else encoded
    longest = max(map(len, prompts))
    # An encoder-decoder reads a prompt, and begins a text of its own.
    source = 0 if isinstance(section, DecoderParams) else longest
    capacity = tokens_that_fit(section, (1 if source else longest) + request.max_tokens)
    beams = request.beams
    fitting = model.sequences_that_fit(capacity, beams.count, source)
    together = min(request.batch_size or min(MOST_AT_ONCE, fitting), fitting, len(prompts))
    speed = Speed(
        prompt_tokens=sum(map(len, prompts)),
        kv_cache_bytes=model.cache_bytes(together, capacity, beams.count, source),
        weights="resident" if model.stream.is_resident else "streamed",
        precision=model.precision,
    )
    completions: list[Completion] = []
    walk = None if source else model.walk(together * beams.count, capacity)
    began, later_s, later, passes = time.perf_counter(), 0.0, 0, 0
    firsts: list[float] = []
    for first in range(0, len(prompts), together):
        batch = _Batch(tokenizer, request, first, prompts[first : first + together], show)
        batch_began = time.perf_counter()
        begun = batch.prompts
        if source:
            assert isinstance(tokenizer, PairTokenizer)
            walk, begun = walk_from(model, batch.prompts, beams.count, capacity), [[tokenizer.start]] * len(begun)
        assert walk is not None
        same: dict[str, Any] = {
            "first_prompt": first,
            "max_tokens": request.max_tokens,
            "uses_cache": request.uses_cache,
            "stopped": stopped,
        }
        if beams.count > 1:
            for found in search(walk, begun, beams=beams, finish=batch.ends, **same):
                batch.first_s = batch.first_s or time.perf_counter() - batch_began
                for hypothesis in found:
                    batch.take_all(hypothesis)
        else:
            for token in generate(walk, begun, sampling=request.sampling, finish=batch.finish, **same):
                batch.take(token.prompt, token.finish_reason)
                if batch.first_s is None and all(batch.made.values()):
                    batch.first_s = time.perf_counter() - batch_began
                if stopped():
                    break
        took = time.perf_counter() - batch_began
        firsts.append(batch.first_s or took)
        later_s += took - firsts[-1]
        made = sum(map(len, batch.made.values()))
        later += max(0, made - len(batch.prompts))
        speed.tokens += made
        passes = walk.passes + (passes if source else 0)
        completions += batch.completions()
        if stopped():
            break
    # A completion for each prompt, with empty ones for prompts that were not begun.
    for number in range(len(completions), len(prompts)):
        completions.append(Completion(request.prompts[number], "", [], len(prompts[number]), "interrupted"))
    speed.seconds = time.perf_counter() - began
    speed.passes = passes
    speed.first_token_s = sum(firsts) / len(firsts)
    speed.tokens_per_s = later / later_s if later and later_s else speed.tokens / max(speed.seconds, 1e-9)
    speed.streamed_bytes = model.stream.streamed_bytes
    speed.nodes, speed.arrived_bytes = model.stream.nodes, model.stream.arrived_bytes
    return Answers(completions, speed, goes_on=not source)


class _Batch:
    """Prompts that are answered together, and their texts so far."""

    def __init__(
        self, tokenizer: Tokenizer, request: Request, first: int, prompts: Sequence[Sequence[int]], show: Show
    ) -> None:
        self.prompts = prompts
        self.made: dict[int, list[int]] = {first + k: [] for k in range(len(prompts))}
        self.first_s: float | None = None
        self._request = request
        self._end = tokenizer.end_of_text
        self._show = show
        self._tokenizer, self._first = tokenizer, first
        self._texts = {first + k: self._text_of(k) for k in range(len(prompts))}
        self._reasons: dict[int, str] = {}

    def _text_of(self, k: int) -> TextStream:
        before = () if isinstance(self._tokenizer, PairTokenizer) else self.prompts[k]
        return TextStream(self._tokenizer, before, self._request.stops)

    def finish(self, prompt: int, tokens: Sequence[int]) -> str | None:
        """Take the last of the tokens that followed a prompt, and say why it is the last."""
        self.made[prompt] = list(tokens)
        if tokens[-1] == self._end:
            return "end_of_text"
        if text := self._texts[prompt].add(tokens[-1]):
            self._show(prompt, text)
        return "stop" if self._texts[prompt].is_stopped else None

    def ends(self, prompt: int, tokens: Sequence[int]) -> str | None:
        """Say why the last of the tokens that may follow a prompt is the last; None where more may follow."""
        if tokens[-1] == self._end:
            return "end_of_text"
        if not self._request.stops:
            return None
        text = self._text_of(prompt - self._first)
        for token in tokens:
            text.add(token)
        return "stop" if text.is_stopped else None

    def take_all(self, hypothesis: Hypothesis) -> None:
        """Take all tokens that a search found for a prompt."""
        for count in range(1, len(hypothesis.tokens) + 1):
            self.finish(hypothesis.prompt, hypothesis.tokens[:count])
        self.take(hypothesis.prompt, hypothesis.finish_reason)

    def take(self, prompt: int, reason: str | None) -> None:
        """Note why a sequence has ended."""
        if reason is None:
            return
        self._reasons[prompt] = reason
        if text := self._texts[prompt].finish():
            self._show(prompt, text)

    def completions(self) -> list[Completion]:
        """Completions, of sequences that were cut short as far as they came."""
        for prompt in self._texts.keys() - self._reasons.keys():
            self.take(prompt, "interrupted")
        return [
            Completion(
                self._request.prompts[prompt],
                stream.text,
                self.made[prompt],
                len(self.prompts[k]),
                self._reasons[prompt],
            )
            for k, (prompt, stream) in enumerate(self._texts.items())
        ]
