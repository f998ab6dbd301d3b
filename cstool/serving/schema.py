"""Requests as clients write them: every field of the API of OpenAI and Cerebras; others are refused.

Types are strict: "1" is no number, and neither is true. A field that this server cannot do is refused where it asks for
something, in the modules that answer.

Source: the OpenAPI description of the Cerebras Inference API, of July 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cstool.serving.refusals import Refused

MOST_CHOICES = 128
MOST_PROMPTS = 2048
MOST_STOPS = 4
MOST_LOGPROBS = 20
_TEXT = 2**24
"""most characters of a text; the limit of a body is reached before"""

Token = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[list[Token], Field(min_length=1)]
StopText = Annotated[str, Field(min_length=1, max_length=1024)]


class _Fields(BaseModel):
    """Fields, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StreamOptions(_Fields):
    """How a stream ends."""

    include_usage: bool = False
    """whether the last chunk has no choices, and the number of tokens"""


class TextPart(_Fields):
    """A part of a content."""

    type: Literal["text"]
    text: str


Content = str | list[TextPart]


class FunctionCall(_Fields):
    """A call of a function."""

    name: str
    arguments: str
    """JSON"""


class ToolCall(_Fields):
    """A call of a tool in a message of the assistant."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(_Fields):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128)] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    """of the assistant, as an earlier answer had it"""
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    """as OpenAI's client writes an earlier answer without them"""


class Function(_Fields):
    """A function that the model may call."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """a JSON schema; None for no arguments"""
    strict: bool | None = None
    """arguments follow the schema where they are enforced at all, so it changes nothing"""


class Tool(_Fields):
    """A tool."""

    type: Literal["function"]
    function: Function


class NamedFunction(_Fields):
    """The name of a function."""

    name: str


class ToolChoice(_Fields):
    """The function that is to be called."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(_Fields):
    """A schema of an answer."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    """None for any object"""
    strict: bool | None = None
    """answers follow the schema in any case"""


class TextFormat(_Fields):
    """An answer of any text."""

    type: Literal["text"]


class JsonObjectFormat(_Fields):
    """An answer that is a JSON object."""

    type: Literal["json_object"]


class JsonSchemaFormat(_Fields):
    """An answer that is JSON by a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class Prediction(_Fields):
    """A text that is expected; it makes an answer faster where it comes true, and changes none."""

    type: Literal["content"]
    content: Content


class Generation(_Fields):
    """Fields of both kinds of requests for text."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """that follow at most; -1 for as many as the context has room for"""
    min_tokens: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    """before which nothing ends the text; -1 for as many as `max_tokens`"""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """0 takes the likeliest token"""
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """of the draws; None for a fresh one, which the answer names"""
    stop: StopText | Annotated[list[StopText], Field(max_length=MOST_STOPS)] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    user: str | None = None
    """name of the user; it changes nothing, and is not kept"""
    prompt_cache_key: Annotated[str, Field(max_length=1024)] | None = None
    """changes nothing: prompts that begin alike share memory with any key"""
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    """changes nothing: all requests wait in one queue, in turn"""

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(Generation):
    """A request for the next message of a conversation."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_PROMPTS)]
    max_completion_tokens: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_completion_tokens: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    prediction: Prediction | None = None
    reasoning_effort: Literal["none", "low", "medium", "high"] | None = None
    reasoning_format: Literal["none", "parsed", "text_parsed", "raw", "hidden"] | None = None
    clear_thinking: bool | None = None
    disable_reasoning: bool | None = None
    model_parameters: dict[str, Any] | None = None


class CompletionRequest(Generation):
    """A request for texts that go on from prompts."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=MOST_PROMPTS)]
    )
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    suffix: str | None = None
    return_raw_tokens: bool | None = None
    grammar_root: str | None = None
    reasoning_format: Literal["none", "parsed", "text_parsed", "raw", "hidden"] | None = None


class EmbeddingRequest(_Fields):
    """A request for vectors of texts."""

    model: str
    input: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=MOST_PROMPTS)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None
    pooling: Literal["mean", "first", "last", "pooled", "question", "context"] | None = None
    """an extension: the vector of a text is the mean over its tokens, or of one token"""


class TokenizeRequest(_Fields):
    """A request for the tokens of a text."""

    prompt: str
    model: str | None = None
    add_special_tokens: bool | None = None
    """begins with the special tokens of the tokenizer's template, for example <s>; by default as prompts do"""


class DetokenizeRequest(_Fields):
    """A request for the text of tokens."""

    tokens: list[Token]
    model: str | None = None


Fields = TypeVar("Fields", bound=BaseModel)
_RULES = {
    "prompt": "must be a text, a list of texts, a list of tokens, or a list of lists of tokens, none of them empty",
    "input": "must be a text, a list of texts, a list of tokens, or a list of lists of tokens, none of them empty",
    "stop": f"must be a text of 1 to 1024 characters, or a list of at most {MOST_STOPS} of them",
    "content": 'must be a text, or a list of {"type": "text", "text": TEXT}',
    "tool_choice": 'must be "none", "auto", "required", or {"type": "function", "function": {"name": NAME}}',
}
"""rules of fields that may be one of several kinds"""


def parsed(kind: type[Fields], document: object) -> Fields:
    """Return a request.

    Args:
        kind: of the request
        document: parsed JSON

    Raises:
        Refused: a field is missing, unknown or wrong
    """
    if not isinstance(document, dict):
        raise Refused(400, "the body must be a JSON object", code="invalid_json")
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=True)[0]
        raise _refused(first["loc"], first["type"], first.get("ctx", {}), first.get("input")) from None


def _refused(place: Sequence[int | str], kind: str, context: dict[str, Any], given: object) -> Refused:
    """The refusal of a field, in words."""
    # Behind a field of several kinds the place goes on with names of these kinds.
    place = [part for k, part in enumerate(place) if part != "[key]" and (k == 0 or place[k - 1] != "response_format")]
    last = next((k for k, part in enumerate(place) if part in _RULES), None)
    if kind == "extra_forbidden" and last is None:
        name = _path(place)
        return Refused(400, f"{name}: must not be there, there is no such field", name, "unknown_field")
    if kind == "missing" and last is None:
        name = _path(place)
        return Refused(400, f"{name}: must be given", name, "missing_field")
    if last is not None:
        name = _path(place[: last + 1])
        if kind == "missing" and last == len(place) - 1:
            return Refused(400, f"{name}: must be given", name, "missing_field")
        return Refused(400, f"{name}: {_RULES[str(place[last])]}", name, "invalid_value")
    name = _path(place)
    return Refused(400, f"{name}: {_rule(kind, context)}, got {_shown(given)}", name, "invalid_value")


def _path(place: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _rule(kind: str, context: dict[str, Any]) -> str:
    rules = {
        "greater_than": "must be above {gt:g}",
        "greater_than_equal": "must be at least {ge:g}",
        "less_than": "must be below {lt:g}",
        "less_than_equal": "must be at most {le:g}",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "finite_number": "must be a finite number",
        "string_type": "must be a text",
        "string_unicode": "must be a text of whole characters",
        "string_too_short": "must have at least {min_length} characters",
        "string_too_long": "must have at most {max_length} characters",
        "string_pattern_mismatch": "must be 1 to 64 letters, digits, _ or -",
        "bool_type": "must be true or false",
        "none_required": "must be null",
        "list_type": "must be a list",
        "dict_type": "must be an object",
        "model_type": "must be an object",
        "model_attributes_type": "must be an object",
        "literal_error": "must be {expected}",
        "too_short": "must have at least {min_length} of them",
        "too_long": "must have at most {max_length} of them",
        "union_tag_invalid": "must have a type of {expected_tags}",
        "union_tag_not_found": "must have a type",
    }
    return rules.get(kind, "must be as the description of the API says").format(**context)


def _shown(given: object) -> str:
    if given is None:
        return "null"
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, list | dict):
        return f"{'a list' if isinstance(given, list) else 'an object'} of {len(given)}"
    try:
        text = repr(given)
    except ValueError:  # a number of too many digits
        return "a number of very many digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
