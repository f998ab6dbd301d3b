"""`/v1/chat/completions`: the next message of a conversation."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from cstool.foundation.errors import DataError
from cstool.serving.asking import FINISH_REASONS, Asked, asked_of, check_ended, check_room, submit
from cstool.serving.refusals import Refused
from cstool.serving.replies import Mailbox, Reply, news_of
from cstool.serving.schema import ChatRequest, Content, Message
from cstool.serving.served import Served
from cstool.serving.shapes import chat_logprobs, closing, usage
from cstool.serving.spelling import Piece
from cstool.serving.streams import KEEP_ALIVE, event


@dataclass(frozen=True)
class ChatPlan:
    """A request that was checked: its conversation is tokens."""

    request: ChatRequest
    asked: Asked
    prompt: Sequence[int]
    n: int


def plan(served: Served, request: ChatRequest) -> ChatPlan:
    """Check a request, and make tokens of its conversation.

    Raises:
        Refused: it cannot be
    """
    served.needs_engine()
    if request.top_logprobs is not None and not request.logprobs:
        raise Refused(400, "top_logprobs: must go with logprobs, got no logprobs", "top_logprobs", "invalid_value")
    for name, value in {
        "tools": request.tools,
        "response_format": None if getattr(request.response_format, "type", "text") == "text" else 1,
        "reasoning_effort": request.reasoning_effort,
        "reasoning_format": request.reasoning_format,
        "clear_thinking": request.clear_thinking,
        "prediction": request.prediction,
    }.items():
        if value:
            raise Refused(400, f"{name}: must be left out, this server does not do it", name, "unsupported")
    most, least = (
        _one(request, names)
        for names in (("max_completion_tokens", "max_tokens"), ("min_completion_tokens", "min_tokens"))
    )
    asked = asked_of(
        served,
        request,
        max_tokens=most,
        min_tokens=least,
        usual=served.limits.max_tokens or served.section.max_tokens,
        top=(request.top_logprobs or 0) if request.logprobs else None,
    )
    prompt = _prompt(served, request)
    check_room(served, prompt, "messages")
    return ChatPlan(request, asked, prompt, request.n or 1)


def _one(request: ChatRequest, names: tuple[str, str]) -> int | None:
    """The value of a field that has two names."""
    first: int | None = getattr(request, names[0])
    second: int | None = getattr(request, names[1])
    if first is not None and second is not None and first != second:
        rule = f"must be left out, or the same as {names[0]}, {first}, got {second}"
        raise Refused(400, f"{names[1]}: {rule}", names[1], "invalid_value")
    return second if first is None else first


def _prompt(served: Served, request: ChatRequest) -> list[int]:
    """The tokens of a conversation, with the begin of an answer."""
    assert served.template is not None
    messages = [_message(message, number) for number, message in enumerate(request.messages)]
    try:
        text = served.template.render(messages, asks=True)
    except DataError as error:
        raise Refused(400, f"messages: {error.message}", "messages", "invalid_value") from None
    tokens = served.encode(text, "messages", begins=False)
    served.check_known(tokens, "messages")
    return tokens


def text_of(content: Content | None) -> str:
    """The text of a content, its parts one after the other."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def _message(message: Message, number: int) -> dict[str, Any]:
    """A message as templates take it."""
    found: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": text_of(message.content),
    }
    where = f"messages[{number}]"
    if message.role == "assistant":
        if message.content is None and not message.tool_calls:
            raise Refused(
                400,
                f"{where}.content: must be given where there are no tool_calls",
                f"{where}.content",
                "missing_field",
            )
    elif message.content is None:
        raise Refused(400, f"{where}.content: must be given", f"{where}.content", "missing_field")
    for name, roles in {"tool_calls": ("assistant",), "reasoning": ("assistant",), "tool_call_id": ("tool",)}.items():
        if getattr(message, name) is not None and message.role not in roles:
            rule = f"must be in a message of {roles[0]} alone, got one of {message.role}"
            raise Refused(400, f"{where}.{name}: {rule}", f"{where}.{name}", "invalid_value")
    if message.name is not None:
        found["name"] = message.name
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    if message.reasoning is not None:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        calls = []
        for k, call in enumerate(message.tool_calls):
            try:
                arguments = json.loads(call.function.arguments or "{}")
            except (ValueError, RecursionError):
                arguments = None
            if not isinstance(arguments, dict):
                name = f"{where}.tool_calls[{k}].function.arguments"
                raise Refused(400, f"{name}: must be a JSON object in a text", name, "invalid_value")
            function = {"name": call.function.name, "arguments": arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
        found["tool_calls"] = calls
    return found


class Chat:
    """The answers of a request, as they come.

    Args:
        served: the model
        plan: the request
        mailbox: for news of the engine

    Raises:
        Refused: the queue is full
    """

    def __init__(self, served: Served, plan: ChatPlan, mailbox: Mailbox) -> None:
        self._served, self._plan, self._mailbox = served, plan, mailbox
        self._created = time.time()
        self.replies = submit(served, plan.asked, [plan.prompt], plan.n, mailbox)
        self._base: dict[str, Any] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion",
            "created": int(self._created),
            "model": plan.request.model,
            "system_fingerprint": served.fingerprint,
            "seed": plan.asked.seed,
        }

    async def whole(self) -> dict[str, Any]:
        """Return all of the answer.

        Raises:
            Refused: it ended before its time
        """
        pieces: list[list[Piece]] = [[] for _ in self.replies]
        async for news in news_of(self._mailbox, self.replies, self._served.limits.keep_alive_s):
            if news is not None:
                pieces[news.index] += news.pieces
        check_ended(self.replies)
        choices = [self._choice(reply, pieces[reply.index]) for reply in self.replies]
        return {**self._base, "choices": choices, **self._end()}

    def _choice(self, reply: Reply, pieces: Sequence[Piece]) -> dict[str, Any]:
        assert reply.finish_reason is not None
        pieces = self._visible(pieces)
        message = {"role": "assistant", "content": "".join(piece.text for piece in pieces)}
        return {
            "index": reply.index,
            "message": message,
            "logprobs": self._logprobs(reply, pieces),
            "finish_reason": FINISH_REASONS[reply.finish_reason],
        }

    def _visible(self, pieces: Sequence[Piece]) -> list[Piece]:
        return [] if self._plan.asked.max_tokens == 0 else [piece for piece in pieces if not piece.is_end]

    def _logprobs(self, reply: Reply, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if not self._plan.request.logprobs:
            return None
        found = [each for piece in pieces for each in reply.piece_logprobs(piece)]
        return {"content": chat_logprobs(found, self._served.spelling), "refusal": None}

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events of a stream.

        Raises:
            Refused: it ended before its time
        """
        request = self._plan.request
        for reply in self.replies:
            yield self._chunk(reply.index, {"role": "assistant", "content": ""})
        running = len(self.replies)
        async for news in news_of(self._mailbox, self.replies, self._served.limits.keep_alive_s):
            if news is None:
                yield KEEP_ALIVE
                continue
            reply = self.replies[news.index]
            if news.finish_reason is not None:
                check_ended([reply])
            if pieces := self._visible(news.pieces):
                text = "".join(piece.text for piece in pieces)
                yield self._chunk(news.index, {"content": text}, self._logprobs(reply, pieces))
            if news.finish_reason is not None:
                running -= 1
                reason = FINISH_REASONS[news.finish_reason]
                last = {} if running or request.includes_usage else closing(self.replies, self._created, None)
                yield self._chunk(news.index, {}, None, reason, **last)
        if request.includes_usage:
            base = {**self._base, "object": "chat.completion.chunk"}
            yield event({**base, "choices": [], **self._end()})

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        reason: str | None = None,
        **more: Any,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        more |= {"usage": None} if self._plan.request.includes_usage else {}
        return event({**self._base, "object": "chat.completion.chunk", "choices": [choice], **more})

    def _end(self) -> dict[str, Any]:
        plan = self._plan
        tokens = 0 if plan.asked.max_tokens == 0 else sum(len(reply.tokens) for reply in self.replies)
        found = {"usage": usage(len(plan.prompt), self.replies, plan.n, tokens)}
        return {**found, **closing(self.replies, self._created, plan.request.service_tier)}
