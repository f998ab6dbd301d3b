"""Texts that go on from prompts: tokens in and out, batch by batch, and how long it took."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cstool.data import Tokenizer
from cstool.errors import InferenceError
from cstool.inference.beams import Beams, Hypothesis, search
from cstool.inference.generate import generate
from cstool.inference.model import InferenceModel
from cstool.inference.sampling import Sampling
from cstool.inference.text_stream import TextStream
from cstool.inference.walk import cache_bytes
from cstool.params import DecoderParams, FcMnistParams, ModelParams, Params

MOST_AT_ONCE = 32
"""prompts that are answered together where nobody says how many; more make each of them wait longer"""

MAX_TOKENS = 128
"""tokens that follow a prompt where nobody says how many"""

Show = Callable[[int, str], None]
"""called with the number of a prompt and a piece of text that follows it"""


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        prompts: texts
        max_tokens: that follow each at most
        sampling: how they are chosen
        beams: where it is more than one, they are searched for, and not drawn
        stops: texts that end what follows, and are no part of it
        truncates: whether of a prompt that leaves no room its last tokens count, as many as leave room for
            `max_tokens` or for half the context; else it is an error
        uses_cache: False computes all tokens again for each that follows
        special_tokens: whether a prompt begins with what the template of its tokenizer puts there, for example <s>
        batch_size: prompts that are answered together; None for as many as there is memory for, and 32 at the most

    Raises:
        InferenceError: something of it cannot be
    """

    prompts: tuple[str, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    beams: Beams = field(default_factory=Beams)
    stops: Sequence[str] = ()
    truncates: bool = False
    uses_cache: bool = True
    special_tokens: bool = True
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for number, prompt in enumerate(self.prompts, start=1):
            if not prompt:
                which = f"prompt {number}" if len(self.prompts) > 1 else "prompt"
                raise InferenceError(
                    f"{which}: must have at least one character, got an empty one", "a newline is enough to go on from"
                )
        if self.max_tokens < 1:
            raise InferenceError(f"max_tokens: must be at least 1, got {self.max_tokens}")
        if "" in self.stops:
            raise InferenceError("stop: must have at least one character, got an empty one")
        if self.batch_size is not None and self.batch_size < 1:
            raise InferenceError(f"batch_size: must be at least 1, got {self.batch_size}")


@dataclass(frozen=True)
class Completion:
    """What followed a prompt."""

    prompt: str
    text: str
    """without the prompt, and without what ended it"""
    tokens: list[int]
    """all that were chosen, those that ended it too"""
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
    """of everything from the first prompt's first pass to the last token [s]"""
    tokens_per_s: float = 0.0
    """of the tokens after the first ones, all sequences together"""
    kv_cache_bytes: int = 0
    streamed_bytes: int = 0
    """of weights; in memory they are read where they are, and count once"""
    weights: str = "resident"
    """resident: in memory; streamed: from a file or other ranks, in every pass"""
    precision: str = "float32"
    """of the weights of products: float32 or bfloat16"""
    nodes: int = 1
    """ranks that keep weights"""
    arrived_bytes: int = 0
    """of weights, from other ranks"""

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON; of one rank without what there is of several alone."""
        found = asdict(self)
        if self.nodes == 1:
            del found["nodes"], found["arrived_bytes"]
        return found


@dataclass(frozen=True)
class Answers:
    """What a model answered."""

    completions: list[Completion]
    speed: Speed

    @property
    def texts(self) -> list[str]:
        """Each prompt with what followed it."""
        return [each.prompt + each.text for each in self.completions]

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"completions": [asdict(each) for each in self.completions], "host": self.speed.as_dict()}


def make_request(
    params: Params,
    prompts: Sequence[str],
    *,
    seed: int | None = None,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    num_beams: int = 1,
    length_penalty: float | None = None,
    **others: Any,
) -> Request:
    """A request, in which the params fill in what is left out.

    Args:
        params: of the model
        prompts: texts
        seed, max_tokens, temperature, top_k, top_p: None for what the params say
        num_beams, length_penalty: of a search, see `Beams`
        others: of `Request`

    Raises:
        InferenceError: the model is none that generates, or something of it cannot be
    """
    decoder = decoder_of(params.model)
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if num_beams > 1 and (name := next((name for name, value in drawing.items() if value is not None), None)):
        raise InferenceError(f"{name}: must go without num_beams, got num_beams {num_beams}", "a search draws nothing")
    if num_beams == 1 and length_penalty is not None:
        raise InferenceError("length_penalty: must go with num_beams, got one beam")
    heat = decoder.temperature if temperature is None else temperature
    return Request(
        tuple(prompts),
        max_tokens if max_tokens is not None else decoder.max_tokens or MAX_TOKENS,
        Sampling(
            1.0 if heat is None else heat,
            decoder.top_k if top_k is None else top_k,
            decoder.top_p if top_p is None else top_p,
            params.seed if seed is None else seed,
        ),
        Beams(num_beams, 1.0 if length_penalty is None else length_penalty),
        **others,
    )


def decoder_of(model: ModelParams) -> DecoderParams:
    """The model section of params, where it is of a model that generates text.

    Raises:
        InferenceError: it is not
    """
    if not isinstance(model, DecoderParams):
        hint = "without a prompt it predicts the classes of its validation data"
        raise InferenceError(
            f"prompt: must be for a model that generates text, got {model.name}",
            hint if isinstance(model, FcMnistParams) else None,
        )
    return model


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
        model: a decoder
        tokenizer: that of its training data
        request: what is asked for
        encoded: of `encode_prompts`, where that was done before
        show: is told pieces of text as they come
        stopped: asked after each token; True ends everything with what there is

    Raises:
        InferenceError: the model is none that generates, or a prompt does not fit it
        DataError: the tokenizer has no tokens for a prompt
        NonFiniteError: the model does not give finite logits
    """
    decoder = decoder_of(model.params.model)
    prompts = encode_prompts(decoder, tokenizer, request) if encoded is None else encoded
    capacity = min(decoder.max_position_embeddings, max(map(len, prompts)) + request.max_tokens)
    beams = request.beams
    fitting = model.sequences_that_fit(capacity, beams.count)
    together = min(request.batch_size or min(MOST_AT_ONCE, fitting), fitting, len(prompts))
    speed = Speed(
        prompt_tokens=sum(map(len, prompts)),
        kv_cache_bytes=cache_bytes(model.graph, together * beams.count, capacity),
        weights="resident" if model.stream.is_resident else "streamed",
        precision=model.precision,
    )
    completions: list[Completion] = []
    walk = model.walk(together * beams.count, capacity)
    began, later_s, later = time.perf_counter(), 0.0, 0
    firsts: list[float] = []
    for first in range(0, len(prompts), together):
        batch = _Batch(tokenizer, request, first, prompts[first : first + together], show)
        batch_began = time.perf_counter()
        same: dict[str, Any] = {
            "first_prompt": first,
            "max_tokens": request.max_tokens,
            "uses_cache": request.uses_cache,
            "stopped": stopped,
        }
        if beams.count > 1:
            for found in search(walk, batch.prompts, beams=beams, finish=batch.ends, **same):
                batch.first_s = batch.first_s or time.perf_counter() - batch_began
                for hypothesis in found:
                    batch.take_all(hypothesis)
        else:
            for token in generate(walk, batch.prompts, sampling=request.sampling, finish=batch.finish, **same):
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
        completions += batch.completions()
        if stopped():
            break
    # A completion for each prompt, those too that nobody began with.
    for number in range(len(completions), len(prompts)):
        completions.append(Completion(request.prompts[number], "", [], len(prompts[number]), "interrupted"))
    speed.seconds = time.perf_counter() - began
    speed.passes = walk.passes
    speed.first_token_s = sum(firsts) / len(firsts)
    speed.tokens_per_s = later / later_s if later and later_s else speed.tokens / max(speed.seconds, 1e-9)
    speed.streamed_bytes = model.stream.streamed_bytes
    speed.nodes, speed.arrived_bytes = model.stream.nodes, model.stream.arrived_bytes
    return Answers(completions, speed)


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
        return TextStream(self._tokenizer, self.prompts[k], self._request.stops)

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


def encode_prompts(decoder: DecoderParams, tokenizer: Tokenizer, request: Request) -> list[list[int]]:
    """Return the tokens of each prompt.

    Args:
        decoder: the model section of the params
        tokenizer: of its training data
        request: what is asked for

    Raises:
        InferenceError: a prompt has no token, one that the model does not know, or so many that none can follow
        DataError: the tokenizer has no tokens for a prompt
    """
    return [_encode(decoder, tokenizer, request, number) for number in range(len(request.prompts))]


def _encode(decoder: DecoderParams, tokenizer: Tokenizer, request: Request, number: int) -> list[int]:
    which = f"prompt {number + 1}" if len(request.prompts) > 1 else "prompt"
    tokens = tokenizer.encode(request.prompts[number])
    if not tokens:
        raise InferenceError(f"{which}: must have at least one token, got {request.prompts[number]!r}, which has none")
    begin = list(tokenizer.begin) if request.special_tokens else []
    if tokens[: len(begin)] == begin:  # it is written out in the prompt
        tokens = tokens[len(begin) :]
    tokens = begin + tokens
    if (largest := max(tokens)) >= decoder.vocab_size:
        raise InferenceError(
            f"{which}: its tokens must be below the model's vocab_size ({decoder.vocab_size:,}), got {largest:,}",
            f"the tokenizer ({tokenizer.name}) has {tokenizer.vocab_size:,} tokens: --tokenizer names that of the "
            "training data",
        )
    context = decoder.max_position_embeddings
    if len(tokens) < context:
        return tokens
    rest = max(context - request.max_tokens, context // 2, 1)
    if not request.truncates:
        raise InferenceError(
            f"{which}: must leave room for a token in the model's context of {context:,}, got {len(tokens):,} tokens",
            f"--truncate_prompt goes on from its last {rest:,}",
        )
    return begin + tokens[len(begin) :][-max(1, rest - len(begin)) :]
