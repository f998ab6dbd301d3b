"""A request for texts, checked; values that are left out come from the params."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cstool.foundation.errors import InferenceError
from cstool.inference.sampling import Beams, Sampling
from cstool.model.params import (
    DecoderParams,
    EncoderDecoderParams,
    FcMnistParams,
    ModelParams,
    Params,
)

MAX_TOKENS = 128
"""default number of tokens that follow a prompt"""

Generator = DecoderParams | EncoderDecoderParams
"""the model section of a model that generates text"""


def generator_of(model: ModelParams) -> Generator:
    """The model section of params, where it is of a model that generates text.

    Raises:
        InferenceError: it is not
    """
    if not isinstance(model, DecoderParams | EncoderDecoderParams) or not model.makes_text:
        hint = "without a prompt it predicts the classes of its validation data"
        raise InferenceError(
            f"prompt: must be for a model that generates text, got {model.name}",
            hint if isinstance(model, FcMnistParams) else None,
        )
    return model


@dataclass(frozen=True)
class Request:
    """A request for texts.

    Args:
        prompts: texts
        max_tokens: that follow each at most
        sampling: how they are chosen
        beams: where it is more than one, they are searched for, and not drawn
        stops: texts that end a continuation, and are no part of it
        truncates: whether of a prompt that leaves no room its last tokens count, as many as leave room for
            `max_tokens` or for half the context; else it is an error
        uses_cache: False computes all tokens again for each that follows
        special_tokens: whether a prompt begins with the special tokens of its tokenizer's template, for example <s>;
            None for as the texts of the data set do
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
    special_tokens: bool | None = None
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
    """A request, in which the params fill in values that are left out.

    Args:
        params: of the model
        prompts: texts
        seed, max_tokens, temperature, top_k, top_p: None for the values of the params
        num_beams, length_penalty: of a search, see `Beams`
        others: of `Request`

    Raises:
        InferenceError: the model is none that generates, or something of it cannot be
    """
    section = generator_of(params.model)
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if num_beams > 1 and (name := next((name for name, value in drawing.items() if value is not None), None)):
        raise InferenceError(f"{name}: must go without num_beams, got num_beams {num_beams}", "a search draws nothing")
    if num_beams == 1 and length_penalty is not None:
        raise InferenceError("length_penalty: must go with num_beams, got one beam")
    if isinstance(section, DecoderParams):
        max_tokens = section.max_tokens if max_tokens is None else max_tokens
        temperature = section.temperature if temperature is None else temperature
        top_k = section.top_k if top_k is None else top_k
        top_p = section.top_p if top_p is None else top_p
    # A translation is wanted as it is likeliest, a text that goes on as the model would have it.
    usual = 1.0 if isinstance(section, DecoderParams) else 0.0
    heat = usual if temperature is None else temperature
    return Request(
        tuple(prompts),
        MAX_TOKENS if max_tokens is None else max_tokens,
        Sampling(heat, top_k, top_p, params.seed if seed is None else seed),
        Beams(num_beams, 1.0 if length_penalty is None else length_penalty),
        **others,
    )
