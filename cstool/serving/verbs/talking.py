"""Talk with a model, in this process or at a server elsewhere: the verb behind `cstool chat`."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import AnswerError, CstoolError
from cstool.serving.refusals import Refused
from cstool.serving.verbs.serving import KEY_VARIABLE, Precision, ServeRequest, opened

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress

PLAIN = "plain"
"""as chat template: none"""
PLAIN_TOKENS = 128
"""most tokens of an answer without a chat template, where neither a flag nor the params say it"""
_MOST_BYTES = 2**24
"""of a file of messages"""
_LOCAL, _ADAPTER = "model", "adapter"
"""names of the model in this process"""
Message = dict[str, Any]
"""with `role` and `content`, as of OpenAI's API"""


class Answering(Protocol):
    """A model that can be asked: `Local`, or a `Client` of a server."""

    def events(self, path: str, document: Mapping[str, Any]) -> Generator[Any, None, None]:
        """Yield the events of a streamed answer; closing the iterator ends the answer.

        Args:
            path: of OpenAI's API
            document: the request, without `stream`

        Raises:
            AnswerError: there is no answer, or it breaks off
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TalkRequest:
    """The model that is talked with, and the form of its answers.

    Args:
        trained: as of `open_model`; None for a server elsewhere
        url: of a server; None for a model in this process
        model: name of the model at the server; None for the only one that it has
        api_key: for the server; None for the variable CSTOOL_API_KEY, if it is set
        system: text that begins the conversation; None for none
        fields: of OpenAI's API: `temperature`, `top_p`, `max_tokens`, `seed`, `stop`; those left out are left to the
            model
        adapter: checkpoint of adapters of the model in this process
        precision, draft, chat_template, tokenizer, context, lanes: as of `ServeRequest`; the template "plain" is none,
            so text goes on from text
    """

    trained: str | None = None
    url: str | None = None
    model: str | None = None
    api_key: str | None = None
    system: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    adapter: str | None = None
    precision: Precision | None = None
    draft: str | None = None
    chat_template: str | None = None
    tokenizer: str | None = None
    context: int | None = None
    lanes: int | None = None


@dataclass(frozen=True)
class Answer:
    """An answer that came to its end.

    Args:
        text: of it
        finish_reason: "stop" or "length"; None where the server does not say it
        first_s: from the request to the first text [s]
        rest_s: from the first token to the end, as the server measured it, or else from the first text [s]
        prompt_tokens, cached_tokens: of the prompt, and of these in memory from before; None where nobody counts them
        tokens: of the answer; None where nobody counts them
    """

    text: str
    finish_reason: str | None
    first_s: float
    rest_s: float
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    tokens: int | None = None


class Talk:
    """A conversation.

    Args:
        model: that is asked
        fields: of each request, `model` among them
        system: text that begins the conversation; None for none
        is_plain: whether text goes on from text, without a chat template
    """

    def __init__(
        self, model: Answering, fields: Mapping[str, Any], *, system: str | None = None, is_plain: bool = False
    ) -> None:
        self._model, self._fields, self.is_plain = model, dict(fields), is_plain
        self.messages: list[Message] = []
        """with their answers"""
        self.unanswered: str | None = None
        """the last message, where no answer to it came"""
        self._tries = 0
        """answers to the last message that were not wanted"""
        self.set_system(system)

    def ask(self, message: str, show: Callable[[str], object]) -> Answer:
        """Say something, and return the answer; whatever ends it early, the text that came is kept.

        Args:
            message: said
            show: takes the pieces of the answer as they come

        Raises:
            AnswerError: there is no answer, or it breaks off
        """
        self._tries = 0
        return self._answer(self.messages, message, show)

    def ask_again(self, show: Callable[[str], object]) -> Answer:
        """Ask for another answer to the last message, with the next seed; where none comes, the old one stays.

        Raises:
            AnswerError: there is no answer, or it breaks off
            CstoolError: nothing was said yet
        """
        if self.unanswered is not None:
            return self._answer(self.messages, self.unanswered, show)
        place = self._last_place()
        self._tries += 1
        return self._answer(self.messages[:place], text_of(self.messages[place]), show)

    def undo(self) -> str:
        """Take back the last message and its answer; return the message.

        Raises:
            CstoolError: nothing was said yet
        """
        if (message := self.unanswered) is not None:
            self.unanswered = None
            return message
        place = self._last_place()
        message = text_of(self.messages[place])
        del self.messages[place:]
        return message

    def reset(self) -> None:
        """Forget all but the system's text."""
        self.messages, self.unanswered = self._system(), None

    def set_system(self, text: str | None) -> None:
        """Let the conversation begin with this text; None for none."""
        begin = [] if text is None else [{"role": "system", "content": text}]
        self.messages = begin + self.messages[len(self._system()) :]

    def save(self, path: Path) -> int:
        """Write the messages into a file, whole or not at all; a line of a file for `cstool finetune`.

        Returns:
            their number

        Raises:
            CstoolError: the file cannot be written, or it is there and has no messages
        """
        if os.path.lexists(path):
            try:
                _messages(path)
            except CstoolError:
                raise CstoolError(f"{path}: must be a new file, or one of messages, got another one") from None
        messages = list(self.messages)
        if self.unanswered is not None:
            messages.append({"role": "user", "content": self.unanswered})
        try:
            write_replacing(path, json.dumps({"messages": messages}) + "\n")
        except (OSError, ValueError) as error:
            raise CstoolError(f"{path}: cannot be written, got: {_reason(error)}") from None
        return len(messages)

    def load(self, path: Path) -> int:
        """Go on from the messages of a file.

        Returns:
            their number

        Raises:
            CstoolError: the file has none; the conversation stays as it was
        """
        messages = _messages(path)
        ends = bool(messages) and messages[-1]["role"] == "user"
        self.messages = messages[:-1] if ends else messages
        self.unanswered, self._tries = text_of(messages[-1]) if ends else None, 0
        return len(messages)

    def _system(self) -> list[Message]:
        return self.messages[:1] if self.messages and self.messages[0]["role"] == "system" else []

    def _last_place(self) -> int:
        for place in reversed(range(len(self.messages))):
            if self.messages[place]["role"] == "user":
                return place
        raise CstoolError("nothing was said yet")

    def _answer(self, before: Sequence[Message], message: str, show: Callable[[str], object]) -> Answer:
        said = [*before, {"role": "user", "content": message}]
        is_new = len(before) == len(self.messages)
        pieces: list[str] = []
        is_whole = False
        try:
            answer = self._stream(said, pieces, show)
            is_whole = True
            return answer
        finally:
            if pieces or is_whole:
                self.messages = [*said, {"role": "assistant", "content": "".join(pieces)}]
                self.unanswered = None
            elif is_new:
                self.unanswered = message

    def _stream(self, said: Sequence[Message], pieces: list[str], show: Callable[[str], object]) -> Answer:
        """Ask for an answer; its pieces are kept and shown as they come."""
        begin = time.perf_counter()
        first, reason = None, None
        usage: Any = {}
        times: Any = {}
        with contextlib.closing(self._model.events(*self._request(said))) as events:
            for event in events:
                piece, ending = _news(event)
                if piece:
                    first = first or time.perf_counter()
                    pieces.append(piece)
                    show(piece)
                reason, usage = ending or reason, event.get("usage") or usage
                times = event.get("time_info") or times
        end = time.perf_counter()
        first = first or end
        return Answer(
            "".join(pieces),
            reason,
            first - begin,
            _number(times, "completion_time") or end - first,
            _number(usage, "prompt_tokens"),
            _number(_value(usage, "prompt_tokens_details"), "cached_tokens"),
            _number(usage, "completion_tokens"),
        )

    def _request(self, said: Sequence[Message]) -> tuple[str, dict[str, Any]]:
        """The path and the document of a request."""
        document: dict[str, Any] = {**self._fields, "stream_options": {"include_usage": True}}
        if self._tries and "seed" in document:
            document["seed"] += self._tries
        if self.is_plain:
            return "/v1/completions", {**document, "prompt": "".join(map(text_of, said))}
        return "/v1/chat/completions", {**document, "messages": said}


def text_of(message: Message) -> str:
    """The text of a message, its parts one after the other."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _news(event: Any) -> tuple[str, str | None]:
    """The text of an event, and the reason for the end."""
    try:
        for choice in event.get("choices") or ():
            text = choice["text"] if "text" in choice else choice["delta"].get("content")
            return text or "", choice.get("finish_reason")
    except (AttributeError, KeyError, TypeError):
        raise AnswerError("the server must send events of OpenAI's API, got others") from None
    return "", None


def _value(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _number(document: Any, name: str) -> Any:
    """A number that a server may tell; None where it does not."""
    found = _value(document, name)
    return found if isinstance(found, int | float) else None


def _messages(path: Path) -> list[Message]:
    """The messages in a file.

    Raises:
        CstoolError: it has none
    """
    from cstool.serving.schema import ChatRequest, parsed

    try:
        if path.exists() and not path.is_file():
            raise CstoolError(f"{path}: must be a file of messages, got a folder or a device")
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise CstoolError(f"{path}: cannot be read, got: {_reason(error)}") from None
    if len(content) > _MOST_BYTES:
        raise CstoolError(f"{path}: must have at most {_MOST_BYTES:,} bytes")
    rule = 'must be JSON as {"messages": [{"role": "user", "content": TEXT}, ...]}'
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CstoolError(f"{path}: {rule}, got: {error}") from None
    if not isinstance(document, dict) or not isinstance(messages := document.get("messages"), list):
        raise CstoolError(f"{path}: {rule}, got no messages")
    try:
        if messages:
            parsed(ChatRequest, {"model": "", "messages": messages})
    except Refused as refused:
        raise CstoolError(f"{path}: {refused.message}") from None
    for number, message in enumerate(messages):
        if message.get("content") is None and not message.get("tool_calls"):
            raise CstoolError(f"{path}: messages[{number}].content: must be given")
    return messages


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@contextlib.contextmanager
def opened_talk(request: TalkRequest, *, progress: Literal["auto", "none"] | Progress = "auto") -> Iterator[Talk]:
    """Yield a conversation with a model.

    Args:
        progress: of the loading; see `open_model`

    Raises:
        CstoolError: it cannot be, or the request has a field that cannot be
    """
    _check(request)
    if request.url is not None:
        from cstool.serving.client import Client

        key = request.api_key if request.api_key is not None else os.environ.get(KEY_VARIABLE)
        client = Client(request.url, key)
        fields = {**request.fields, "model": request.model or _only(client.models())}
        is_plain = request.chat_template == PLAIN
        if is_plain:
            fields.setdefault("max_tokens", PLAIN_TOKENS)
        yield Talk(client, fields, system=request.system, is_plain=is_plain)
        return
    from cstool.serving.local import Local
    from cstool.training.data.chat_templates import find_template, special_tokens

    assert request.trained is not None
    serve = ServeRequest(
        request.trained,
        {} if request.adapter is None else {_ADAPTER: request.adapter},
        served_model_name=_LOCAL,
        max_batch=1,
        precision=request.precision,
        draft=request.draft,
        chat_template=request.chat_template,
        tokenizer=request.tokenizer,
        context=request.context,
        lanes=request.lanes,
    )
    with opened(serve, progress) as served:
        try:
            tokenizer: Any = served.needs_tokenizer()
        except Refused:
            raise CstoolError(f"{request.trained}: must be a model that makes text, makes vectors alone") from None
        is_plain = find_template(request.chat_template, tokenizer, special_tokens(tokenizer)) is None
        fields = {**request.fields, "model": _LOCAL if request.adapter is None else _ADAPTER}
        if is_plain:
            fields.setdefault("max_tokens", served.section.max_tokens or PLAIN_TOKENS)
        yield Talk(Local(served), fields, system=request.system, is_plain=is_plain)


def _check(request: TalkRequest) -> None:
    """Check a request before anything is opened, or raise CstoolError."""
    from cstool.serving.schema import ChatRequest, parsed

    if (request.trained is None) == (request.url is None):
        got = "neither" if request.url is None else "both"
        raise CstoolError(f"cstool chat: must have a CHECKPOINT, or --url of a server, got {got}")
    of_servers = ("model", "api_key")
    of_models = ("adapter", "precision", "draft", "tokenizer", "context", "lanes")
    for name in of_servers if request.url is None else of_models:
        if getattr(request, name) is not None:
            other = "goes with --url alone" if request.url is None else "is said at the server, not with --url"
            raise CstoolError(f"--{name}: must be left out, it {other}")
    if request.url is not None and request.chat_template not in (None, PLAIN):
        raise CstoolError(f"--chat_template: must be {PLAIN} or left out with --url, got {request.chat_template}")
    try:
        parsed(
            ChatRequest, {**request.fields, "model": "", "messages": [{"role": "system", "content": request.system}]}
        )
    except Refused as refused:
        raise CstoolError(f"--{refused.message}") from None


def _only(names: Sequence[str]) -> str:
    if len(names) != 1:
        raise CstoolError(f"--model: must be one of {', '.join(names) or 'the models of the server, which names none'}")
    return names[0]
