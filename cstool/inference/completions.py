"""Texts that go on from prompts: tokens in and out, batch by batch, with times."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cstool.inference.decoding import Decoder
from cstool.inference.model import InferenceModel
from cstool.inference.prompts import encode_prompts, tokens_that_fit
from cstool.inference.request import Request, generator_of
from cstool.inference.sequences import Made, TokenRequest
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
    adapter: str | None = None
    """file of the adapters with which it was made; None without"""

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "adapter" or value is not None}


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
    activation_zeros: float | None = None
    """share of zeros among the numbers that layers behind relu, or a relation of it, met in passes over a few tokens;
    None where there are no such layers"""
    nodes: int = 1
    """ranks that keep weights"""
    arrived_bytes: int = 0
    """bytes of weights from other ranks"""

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON; without entries of several ranks, or of zeros, where there are none."""
        found = asdict(self)
        if self.activation_zeros is None:
            del found["activation_zeros"]
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
        return {"completions": [each.as_dict() for each in self.completions], "host": self.speed.as_dict()}


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
        stopped: asked before each pass; True ends everything, with the texts so far

    Raises:
        InferenceError: the model is none that generates, or a prompt does not fit it
        DataError: the tokenizer has no tokens for a prompt
        NonFiniteError: the model does not give finite logits
    """
    section = generator_of(model.params.model)
    prompts = encode_prompts(section, tokenizer, request) if encoded is None else encoded
    speed = Speed(prompt_tokens=sum(map(len, prompts)))
    # Each prompt with each of the adapters.
    ways = max(1, len(model.adapters))
    prompts = [prompt for prompt in prompts for _ in range(ways)]
    longest = max(map(len, prompts))
    # An encoder-decoder reads a prompt, and begins a text of its own.
    source = 0 if isinstance(section, DecoderParams) else longest
    capacity = tokens_that_fit(section, (1 if source else longest) + request.max_tokens)
    beams = request.beams.count
    fitting = model.sequences_that_fit(capacity, beams, source)
    together = min(request.batch_size or min(MOST_AT_ONCE, fitting), fitting, len(prompts))
    speed.kv_cache_bytes = model.cache_bytes(together, capacity, beams, source)
    speed.weights = "resident" if model.stream.is_resident else "streamed"
    speed.precision = model.precision
    # A completion for each prompt, with empty ones for prompts that are not begun.
    texts = [_Text(number, ways, prompt, tokenizer, request, show) for number, prompt in enumerate(prompts)]
    walk = None if source else model.walk(together * beams, capacity)
    began, later_s, later = time.perf_counter(), 0.0, 0
    firsts: list[float] = []
    for first in range(0, len(prompts), together):
        batch, batch_began, first_s = texts[first : first + together], time.perf_counter(), None
        if source:
            walk = walk_from(model, prompts[first : first + together], beams, capacity)
        assert walk is not None
        decoder = Decoder(walk, uses_cache=request.uses_cache)
        for k, text in enumerate(batch):
            decoder.admit(text.token_request(k))
        while decoder.is_busy:
            for made in decoder.step(stopped):
                texts[made.prompt].take(made)
            if first_s is None and not decoder.is_reading:
                first_s = time.perf_counter() - batch_began
        took = time.perf_counter() - batch_began
        firsts.append(first_s or took)
        later_s += took - firsts[-1]
        tokens = sum(len(text.tokens) for text in batch)
        later += max(0, tokens - len(batch))
        speed.tokens += tokens
        speed.passes = walk.passes + (speed.passes if source else 0)
        if stopped():
            break
    speed.seconds = time.perf_counter() - began
    speed.first_token_s = sum(firsts) / len(firsts)
    speed.tokens_per_s = later / later_s if later and later_s else speed.tokens / max(speed.seconds, 1e-9)
    speed.streamed_bytes = model.stream.streamed_bytes
    speed.activation_zeros = model.zeros.share
    speed.nodes, speed.arrived_bytes = model.stream.nodes, model.stream.arrived_bytes
    names: list[str | None] = [*model.adapter_names] or [None]
    completions = [text.completion(names[number % ways]) for number, text in enumerate(texts)]
    return Answers(completions, speed, goes_on=not source)


class _Text:
    """The text of a prompt so far.

    Args:
        number: of the text
        ways: number of texts of each prompt
    """

    def __init__(
        self, number: int, ways: int, prompt: Sequence[int], tokenizer: Tokenizer, request: Request, show: Show
    ) -> None:
        self._number, self._prompt, self._request = number, prompt, request
        self._of_prompt, self._adapter = divmod(number, ways)
        self._tokenizer, self._show = tokenizer, show
        self.tokens: list[int] = []
        """that followed the prompt"""
        self._stream = self._new_stream()
        self._reason = "interrupted"

    def _new_stream(self) -> TextStream:
        before = () if isinstance(self._tokenizer, PairTokenizer) else self._prompt
        return TextStream(self._tokenizer, before, self._request.stops)

    def token_request(self, place: int) -> TokenRequest:
        """Ask for its tokens.

        Args:
            place: of the prompt in its batch: for an encoder-decoder the number of its source
        """
        begun = [self._tokenizer.start] if isinstance(self._tokenizer, PairTokenizer) else self._prompt
        choice = self._request.beams if self._request.beams.count > 1 else self._request.sampling
        finish = self._ends if self._request.beams.count > 1 else self._finish
        draws, adapter = self._of_prompt, self._adapter
        return TokenRequest(self._number, begun, self._request.max_tokens, choice, finish, place, draws, adapter)

    def _finish(self, tokens: Sequence[int]) -> str | None:
        """Take the last of the tokens that followed the prompt, and say why it is the last."""
        self.tokens = list(tokens)
        if tokens[-1] == self._tokenizer.end_of_text:
            return "end_of_text"
        if text := self._stream.add(tokens[-1]):
            self._show(self._number, text)
        return "stop" if self._stream.is_stopped else None

    def _ends(self, tokens: Sequence[int]) -> str | None:
        """Say why the last of the tokens that may follow the prompt is the last; None where more may follow."""
        if tokens[-1] == self._tokenizer.end_of_text:
            return "end_of_text"
        if not self._request.stops:
            return None
        stream = self._new_stream()
        for token in tokens:
            stream.add(token)
        return "stop" if stream.is_stopped else None

    def take(self, made: Made) -> None:
        """Take tokens that are certain, all of a search at once, and note why they have ended."""
        for token in made.tokens if self._request.beams.count > 1 else ():
            self._finish([*self.tokens, token])
        if made.finish_reason is not None:
            self._reason = made.finish_reason
            if text := self._stream.finish():
                self._show(self._number, text)

    def completion(self, adapter: str | None) -> Completion:
        """The text as far as it came."""
        prompt = self._request.prompts[self._of_prompt]
        return Completion(prompt, self._stream.text, self.tokens, len(self._prompt), self._reason, adapter)
