"""`/v1/chat/completions`: the next message of a conversation."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cstool.foundation.errors import DataError
from cstool.serving.asking import FINISH_REASONS, Asked, asked_of, check_ended, check_room, submit
from cstool.serving.endless import check_ends
from cstool.serving.grammars import AnswerGrammar
from cstool.serving.parts import THINK, Divider, Part
from cstool.serving.refusals import Refused
from cstool.serving.replies import Mailbox, News, Reply, news_of
from cstool.serving.schema import (
    ChatRequest,
    Content,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    Tool,
    ToolChoice,
)
from cstool.serving.served import Served
from cstool.serving.shapes import KEEP_ALIVE, chat_logprobs, closing, event, usage
from cstool.serving.tools import ToolForm
from cstool.training.data.chat_templates import ChatTemplate


@dataclass(frozen=True)
class ChatPlan:
    """A request that was checked: its conversation is tokens."""

    request: ChatRequest
    asked: Asked
    prompt: Sequence[int]
    n: int
    thinks: Literal["no", "may", "inside"] = "no"
    form: ToolForm | None = None
    """of calls of tools; None where there can be none"""


def plan(served: Served, request: ChatRequest) -> ChatPlan:
    """Check a request, and make tokens of its conversation.

    Raises:
        Refused: it cannot be
    """
    served.needs_engine()
    if request.top_logprobs is not None and not request.logprobs:
        raise Refused(400, "top_logprobs: must go with logprobs, got no logprobs", "top_logprobs", "invalid_value")
    if request.model_parameters:
        rule = "must be left out or empty, the model has none"
        raise Refused(400, f"model_parameters: {rule}", "model_parameters", "unsupported")
    template = served.template
    assert template is not None
    others = _others(request, template)
    tools = _tools(served, request)
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
    text, prompt = _prompt(served, request, others, tools)
    check_room(served, prompt, "messages")
    thinks: Literal["no", "may", "inside"] = "no"
    if THINK in template.source:
        thinks = "inside" if text.rstrip().endswith(THINK) else "may"
    grammar = _grammar(served, request, tools, thinks)
    if grammar is not None and (asked.min_tokens or asked.stops):
        name = "min_tokens" if asked.min_tokens else "stop"
        rule = "must be left out where the form of the answer is enforced"
        raise Refused(400, f"{name}: {rule}", name, "invalid_value")
    prediction = _prediction(served, request)
    asked = replace(asked, grammar=grammar, prediction=prediction)
    return ChatPlan(request, asked, prompt, request.n or 1, thinks, served.form if tools else None)


def _others(request: ChatRequest, template: ChatTemplate) -> dict[str, Any]:
    """Values that the template reads, by the fields that ask for them.

    Raises:
        Refused: it does not read them
    """
    found: dict[str, Any] = {}
    effort, name = request.reasoning_effort, "reasoning_effort"
    if request.disable_reasoning:
        name = "disable_reasoning"
        if effort not in (None, "none"):
            raise Refused(400, f"{name}: must go with no reasoning_effort, got {effort}", name, "invalid_value")
        # A model without thoughts has none to leave out.
        thinks = any(word in template.source for word in (THINK, "enable_thinking", "reasoning_effort"))
        effort = "none" if thinks else None
    if effort is not None:
        if "reasoning_effort" in template.source:
            found["reasoning_effort"] = effort
        if "enable_thinking" in template.source:
            found["enable_thinking"] = effort != "none"
        if not found:
            raise _unread(name, template)
    if request.clear_thinking is not None:
        if "clear_thinking" not in template.source:
            raise _unread("clear_thinking", template)
        found["clear_thinking"] = request.clear_thinking
    if request.reasoning_format not in (None, "none") and THINK not in template.source:
        raise _unread("reasoning_format", template)
    return found


def _unread(name: str, template: ChatTemplate) -> Refused:
    rule = f"must be left out, the chat template ({template.told}) has nothing for it"
    return Refused(400, f"{name}: {rule}", name, "unsupported")


def _tools(served: Served, request: ChatRequest) -> list[Tool]:
    """The tools that may be called.

    Raises:
        Refused: the model takes none, or the choice is of none of them
    """
    tools, choice = request.tools or [], request.tool_choice
    if tools and served.form is None:
        assert served.template is not None
        rule = (
            f"must be left out, the chat template ({served.template.told}) takes no tools in a form that is known here"
        )
        raise Refused(400, f"tools: {rule}", "tools", "unsupported")
    names = [tool.function.name for tool in tools]
    if len(set(names)) < len(names):
        raise Refused(400, "tools: must have names that differ", "tools", "invalid_value")
    if choice in (None, "none"):
        return tools if choice is None else []
    if not tools:
        raise Refused(400, "tool_choice: must go with tools, got none", "tool_choice", "invalid_value")
    if isinstance(choice, ToolChoice) and choice.function.name not in names:
        rule = f"must name one of the tools, got {choice.function.name!r}"
        raise Refused(400, f"tool_choice: {rule}", "tool_choice", "invalid_value")
    return tools


def _grammar(
    served: Served, request: ChatRequest, tools: Sequence[Tool], thinks: str
) -> Callable[[], AnswerGrammar] | None:
    """A maker of grammars of the answers; None for any text."""
    choice, form = request.tool_choice, request.response_format
    is_json = isinstance(form, JsonObjectFormat | JsonSchemaFormat)
    if is_json and tools:
        rule = "must be text where tools may be called"
        raise Refused(400, f"response_format: {rule}", "response_format", "invalid_value")
    if isinstance(form, JsonObjectFormat):
        return served.grammars.of_schema({"type": "object"}, "response_format")
    if isinstance(form, JsonSchemaFormat):
        given = form.json_schema.schema_
        schema = {"type": "object"} if given is None else given
        return served.grammars.of_schema(schema, "response_format.json_schema.schema")
    if tools and (choice == "required" or isinstance(choice, ToolChoice)):
        for number, tool in enumerate(tools):
            check_ends(tool.function.parameters, f"tools[{number}].function.parameters")
        if isinstance(choice, ToolChoice):
            tools = [tool for tool in tools if tool.function.name == choice.function.name]
        assert served.form is not None
        many = request.parallel_tool_calls is not False and choice == "required"
        special = {text: number for number, text in served.special_texts.items()}
        lark = served.form.lark(tools, special, many=many, thinks=thinks == "inside")
        return served.grammars.of_lark(lark, "tools")
    return None


def _prediction(served: Served, request: ChatRequest) -> list[int]:
    if request.prediction is None:
        return []
    tokens = served.encode(text_of(request.prediction.content), "prediction", begins=False)
    served.check_known(tokens, "prediction")
    return tokens


def _one(request: ChatRequest, names: tuple[str, str]) -> int | None:
    """The value of a field that has two names."""
    first: int | None = getattr(request, names[0])
    second: int | None = getattr(request, names[1])
    if first is not None and second is not None and first != second:
        rule = f"must be left out, or the same as {names[0]}, {first}, got {second}"
        raise Refused(400, f"{names[1]}: {rule}", names[1], "invalid_value")
    return second if first is None else first


def _prompt(
    served: Served, request: ChatRequest, others: dict[str, Any], tools: Sequence[Tool]
) -> tuple[str, list[int]]:
    """The text and the tokens of a conversation, with the begin of an answer."""
    assert served.template is not None
    messages = [_message(message, number) for number, message in enumerate(request.messages)]
    shown = [tool.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for tool in tools] or None
    try:
        text = served.template.render(messages, shown, asks=True, others=others)
    except DataError as error:
        raise Refused(400, f"messages: {error.message}", "messages", "invalid_value") from None
    tokens = served.encode(text, "messages", begins=False)
    served.check_known(tokens, "messages")
    return text, tokens


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
        self._dividers = [self._divider() for _ in self.replies]
        self._base: dict[str, Any] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion",
            "created": int(self._created),
            "model": plan.request.model,
            "system_fingerprint": served.fingerprint,
            "seed": plan.asked.seed,
        }

    def _divider(self) -> Divider:
        plan = self._plan
        # Raw, thoughts are text as any other.
        is_raw = plan.request.reasoning_format in (None, "none", "raw")
        return Divider("no" if is_raw else plan.thinks, plan.form, many=plan.request.parallel_tool_calls is not False)

    async def whole(self) -> dict[str, Any]:
        """Return all of the answer.

        Raises:
            Refused: it ended before its time
        """
        parts: list[list[Part]] = [[] for _ in self.replies]
        async for news in news_of(self._mailbox, self.replies, self._served.limits.keep_alive_s):
            if news is not None:
                parts[news.index] += self._parts(news)
        check_ended(self.replies)
        choices = [self._choice(reply, parts[reply.index]) for reply in self.replies]
        return {**self._base, "choices": choices, **self._end()}

    def _parts(self, news: News) -> list[Part]:
        """The parts of an answer that are certain with some news, as they are wanted."""
        divider = self._dividers[news.index]
        found = divider.take(news.pieces)
        if news.finish_reason is not None:
            found += divider.finish()
        return found

    def _choice(self, reply: Reply, parts: Sequence[Part]) -> dict[str, Any]:
        content = "".join(part.text for part in parts if part.kind == "content")
        reasoning = "".join(part.text for part in parts if part.kind == "reasoning")
        calls = [call.document() for part in parts for call in part.calls]
        message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
        if reasoning and self._shows_reasoning:
            message["reasoning"] = reasoning
        if calls:
            message["tool_calls"] = calls
        choice = {"index": reply.index, "message": message, "logprobs": None, "finish_reason": self._reason(reply)}
        if self._plan.request.logprobs:
            choice["logprobs"] = self._logprobs(reply, [part for part in parts if part.kind == "content"])
            thoughts = [part for part in parts if part.kind == "reasoning"]
            if thoughts and self._shows_reasoning:
                choice["reasoning_logprobs"] = self._logprobs(reply, thoughts)
        return choice

    def _reason(self, reply: Reply) -> str:
        assert reply.finish_reason is not None
        found = FINISH_REASONS[reply.finish_reason]
        return "tool_calls" if found == "stop" and self._dividers[reply.index].calls else found

    @property
    def _shows_reasoning(self) -> bool:
        return self._plan.request.reasoning_format in ("parsed", "text_parsed")

    def _logprobs(self, reply: Reply, parts: Sequence[Part]) -> dict[str, Any] | None:
        if not self._plan.request.logprobs:
            return None
        found = [each for part in parts for piece in part.pieces for each in reply.piece_logprobs(piece)]
        return {"content": chat_logprobs(found, self._served.spelling), "refusal": None}

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events of a stream.

        Raises:
            Refused: it ended before its time
        """
        request = self._plan.request
        for reply in self.replies:
            yield self._chunk(reply.index, {"role": "assistant", "content": ""})
        running, calls = len(self.replies), [0] * len(self.replies)
        async for news in news_of(self._mailbox, self.replies, self._served.limits.keep_alive_s):
            if news is None:
                yield KEEP_ALIVE
                continue
            reply = self.replies[news.index]
            if news.finish_reason is not None:
                check_ended([reply])
            for part in self._parts(news):
                for chunk in self._part_chunks(reply, part, calls):
                    yield chunk
            if news.finish_reason is not None:
                running -= 1
                last = {} if running or request.includes_usage else closing(self.replies, self._created, None)
                yield self._chunk(news.index, {}, None, self._reason(reply), **last)
        if request.includes_usage:
            base = {**self._base, "object": "chat.completion.chunk"}
            yield event({**base, "choices": [], **self._end()})

    def _part_chunks(self, reply: Reply, part: Part, calls: list[int]) -> Iterator[bytes]:
        """Yield the chunks of a part: of a call one with its name, and one with its arguments."""
        if part.kind == "content":
            yield self._chunk(reply.index, {"content": part.text}, self._logprobs(reply, [part]))
        elif part.kind == "reasoning" and self._shows_reasoning:
            found = self._logprobs(reply, [part])
            more = {} if found is None else {"reasoning_logprobs": found}
            yield self._chunk(reply.index, {"reasoning": part.text}, of_choice=more)
        for call in part.calls:
            number, document = calls[reply.index], call.document()
            arguments = document["function"]["arguments"]
            document["function"]["arguments"] = ""
            yield self._chunk(reply.index, {"tool_calls": [{"index": number, **document}]})
            rest = {"index": number, "function": {"arguments": arguments}}
            yield self._chunk(reply.index, {"tool_calls": [rest]})
            calls[reply.index] += 1

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        reason: str | None = None,
        of_choice: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason, **(of_choice or {})}
        more |= {"usage": None} if self._plan.request.includes_usage else {}
        return event({**self._base, "object": "chat.completion.chunk", "choices": [choice], **more})

    def _end(self) -> dict[str, Any]:
        plan = self._plan
        tokens = sum(len(reply.tokens) for reply in self.replies)
        thoughts = sum(divider.reasoning_tokens for divider in self._dividers)
        found = {"usage": usage(len(plan.prompt), self.replies, plan.n, tokens, thoughts)}
        return {**found, **closing(self.replies, self._created, plan.request.service_tier)}
