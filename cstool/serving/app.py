"""The application: paths, and the way of a request through them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from cstool import __version__
from cstool.serving import chats, completions
from cstool.serving.asking import cancel
from cstool.serving.bodies import read_document
from cstool.serving.description import openapi
from cstool.serving.log_lines import request_line
from cstool.serving.metrics import CONTENT_TYPE, Answers, Histogram, joined, plain
from cstool.serving.page import PAGE_PATHS, send_page
from cstool.serving.refusals import Refused, busy
from cstool.serving.replies import Mailbox, Reply, TooSlow
from cstool.serving.schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
    parsed,
)
from cstool.serving.served import Served
from cstool.serving.streams import send_bytes, send_events, send_json, while_there

log = logging.getLogger("cstool")
REPLIES = "cstool.replies"
"""key of a request's answers in the state of its scope"""
Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]


class Generating(Protocol):
    """Answers of the engine to one request."""

    @property
    def replies(self) -> Sequence[Reply]:
        """The answers."""

    async def whole(self) -> dict[str, Any]:
        """Return all of the answer."""

    def events(self) -> AsyncIterator[bytes]:
        """Yield the events of a stream."""


@dataclass
class Numbers:
    """Counts and times of requests."""

    answers: Answers = field(default_factory=Answers)
    first_token: Histogram = field(
        default_factory=lambda: Histogram("cstool_time_to_first_token_seconds", "From a request to its first token.")
    )
    between: Histogram = field(
        default_factory=lambda: Histogram(
            "cstool_inter_token_seconds", "Between two tokens of an answer, the mean of each."
        )
    )
    whole: Histogram = field(
        default_factory=lambda: Histogram("cstool_request_seconds", "From a request to its last token.")
    )

    def count(self, replies: Sequence[Reply]) -> None:
        """Count the times of answers that have ended."""
        for reply in replies:
            times = reply.ticket.times if reply.ticket is not None else None
            if times is None or times.first is None or times.ended is None:
                continue
            self.first_token.add(times.first - times.came)
            self.whole.add(times.ended - times.came)
            if (later := len(reply.tokens) - 1) > 0:
                self.between.add((times.ended - times.first) / later, later)


class Server:
    """Answers requests for a model.

    Args:
        served: the model
        is_ending: whether no request is taken any more
    """

    def __init__(self, served: Served, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._served, self._is_ending = served, is_ending
        self._numbers = Numbers()
        self.routes: Mapping[str, Mapping[str, Endpoint]] = {
            "/v1/chat/completions": {"POST": self._chat},
            "/v1/completions": {"POST": self._completions},
            "/v1/embeddings": {"POST": self._embeddings},
            "/openapi.json": {"GET": self._openapi},
            "/v1/models": {"GET": self._models},
            "/public/v1/models": {"GET": self._models},
            "/v1/tcp_warming": {"GET": self._warming},
            "/tokenize": {"POST": self._tokenize},
            "/detokenize": {"POST": self._detokenize},
            "/health": {"GET": self._health},
            "/metrics": {"GET": self._metrics},
            **{path: {"GET": send_page} for path in PAGE_PATHS},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        status = 0

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path, endpoint = self._endpoint(scope)
        came = time.perf_counter()
        try:
            await endpoint(scope, receive, counted)
        except Refused as refused:
            if not status:
                await send_json(counted, refused.document(), refused.status, refused.headers)
        except (ClientDisconnect, TooSlow):
            status = 499
        finally:
            self._numbers.answers.add(path, status)
            took_s, replies = time.perf_counter() - came, scope.get("state", {}).get(REPLIES, ())
            log.info(request_line(scope["method"], path, status, took_s, replies))

    def _endpoint(self, scope: Scope) -> tuple[str, Endpoint]:
        path, method = scope["path"], scope["method"]
        for prefix in ("/v1/models/", "/public/v1/models/"):
            if path.startswith(prefix) and len(path) > len(prefix):
                return f"{prefix}{{model}}", self._allowed(path, method, {"GET": self._model})
        if path not in self.routes:
            return "other", _refusing(Refused(404, f"there is no {path[:100]} here", code="no_such_path"))
        return path, self._allowed(path, method, self.routes[path])

    def _allowed(self, path: str, method: str, found: Mapping[str, Endpoint]) -> Endpoint:
        if (endpoint := found.get("GET" if method == "HEAD" else method)) is not None:
            return endpoint
        allowed = ", ".join(found)
        return _refusing(
            Refused(405, f"{path[:100]} must be asked by {allowed}, got {method[:20]}", headers={"Allow": allowed})
        )

    async def _document(self, scope: Scope, receive: Receive) -> object:
        limits = self._served.limits
        return await read_document(scope, receive, limits.body_bytes, limits.body_s)

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = parsed(ChatRequest, await self._generation(scope, receive))
        plan = await self._prepared(lambda: chats.plan(self._served, request))
        await self._generate(
            scope, receive, send, bool(request.stream), lambda mailbox: chats.Chat(self._served, plan, mailbox)
        )

    async def _completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = parsed(CompletionRequest, await self._generation(scope, receive))
        plan = await self._prepared(lambda: completions.plan(self._served, request))
        await self._generate(
            scope,
            receive,
            send,
            bool(request.stream),
            lambda mailbox: completions.Completions(self._served, plan, mailbox),
        )

    async def _generation(self, scope: Scope, receive: Receive) -> object:
        if self._is_ending():
            raise busy(is_ending=True)
        self._served.check_weights()
        _check_version(Headers(scope=scope))
        return await self._document(scope, receive)

    async def _prepared(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._served.preparing, work)

    async def _generate(
        self, scope: Scope, receive: Receive, send: Send, streams: bool, begin: Callable[[Mailbox], Generating]
    ) -> None:
        if self._is_ending():
            raise busy(is_ending=True)
        generating = begin(Mailbox(asyncio.get_running_loop()))
        scope.setdefault("state", {})[REPLIES] = generating.replies
        try:
            if streams:
                events = generating.events()
                await while_there(receive, lambda: send_events(send, events, self._served.limits.write_s))
            else:
                document = await while_there(receive, generating.whole)
                await send_json(send, document)
        finally:
            cancel(generating.replies)
            self._numbers.count(generating.replies)

    async def _embeddings(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = parsed(EmbeddingRequest, await self._generation(scope, receive))
        if self._served.adapter(request.model):
            rule = f"must be {self._served.name} for vectors, which is without adapters, got {request.model}"
            raise Refused(400, f"model: {rule}", "model", "unsupported")
        embeddings = self._served.embeddings
        await send_json(send, await while_there(receive, lambda: embeddings.answer(request)))

    async def _openapi(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, openapi(__version__, self._served.names))

    async def _models(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        served = self._served
        await send_json(send, {"object": "list", "data": [served.description(name) for name in served.names]})

    async def _model(self, scope: Scope, _receive: Receive, send: Send) -> None:
        name = scope["path"].partition("/models/")[2]
        self._served.adapter(name)
        await send_json(send, self._served.description(name))

    async def _warming(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send_json(send, {"status": "ok"})

    async def _tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, served = parsed(TokenizeRequest, await self._document(scope, receive)), self._served
        if request.model is not None:
            served.adapter(request.model)
        tokens = await self._prepared(
            lambda: served.encode(request.prompt, "prompt", begins=request.add_special_tokens)
        )
        await send_json(send, {"tokens": tokens, "count": len(tokens), "max_model_len": served.context})

    async def _detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, served = parsed(DetokenizeRequest, await self._document(scope, receive)), self._served
        if request.model is not None:
            served.adapter(request.model)
        await send_json(send, {"prompt": await self._prepared(lambda: served.needs_tokenizer().decode(request.tokens))})

    async def _health(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        served = self._served
        served.check_weights()
        failure = None if served.engine is None else served.engine.failure
        if failure is not None:
            raise Refused(503, f"the engine has failed: {failure!r}", code="engine_failed")
        if self._is_ending():
            raise busy(is_ending=True)
        checkpoint = "changed" if served.has_changed() else "as read"
        await send_json(send, {"status": "ok", "model": served.name, "checkpoint": checkpoint})

    async def _metrics(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        numbers = self._numbers
        metrics = [
            numbers.answers.lines(),
            *(each.lines() for each in (numbers.first_token, numbers.between, numbers.whole)),
        ]
        await send_bytes(send, joined([*metrics, *self._load()]), CONTENT_TYPE)

    def _load(self) -> list[list[str]]:
        if self._served.engine is None:
            return []
        load = self._served.engine.load()
        rows = [
            ("requests_running", "gauge", "Requests whose tokens are made.", load.running),
            ("requests_waiting", "gauge", "Requests that wait for their turn.", load.waiting),
            ("prompt_tokens_total", "counter", "Tokens of prompts.", load.prompt_tokens),
            ("cached_tokens_total", "counter", "Tokens of prompts that were in memory.", load.cached_tokens),
            ("generated_tokens_total", "counter", "Tokens that followed prompts.", load.tokens),
            ("drafted_tokens_total", "counter", "Tokens that were drafted.", load.drafted_tokens),
            ("accepted_tokens_total", "counter", "Drafted tokens that were right.", load.accepted_tokens),
            ("passes_total", "counter", "Passes over the weights.", load.passes),
            (
                "preemptions_total",
                "counter",
                "Requests that lost their memory to others, and got it back.",
                load.preemptions,
            ),
            (
                "streamed_bytes_total",
                "counter",
                "Bytes of weights that passes took: from a file each time, from memory once.",
                load.streamed_bytes,
            ),
            ("kv_pages_used", "gauge", "Pages of keys and values of running requests.", load.kv_pages),
            ("kv_pages_cached", "gauge", "Pages kept for prompts that begin alike.", load.kv_pages_cached),
            ("kv_pages", "gauge", "Pages of keys and values in all.", load.kv_pages_total),
        ]
        found = [plain(f"cstool_{name}", kind, text, value) for name, kind, text, value in rows]
        return [*found, plain("cstool_time_seconds", "gauge", "Time of this host.", time.time())]


def _check_version(headers: Headers) -> None:
    """Check headers of the vendor's API."""
    patch = headers.get("x-cerebras-version-patch")
    if patch not in (None, "1", "2"):
        name = "X-Cerebras-Version-Patch"
        raise Refused(400, f"{name}: must be 1 or 2, got {patch[:40]!r}", name, "invalid_value")
    if headers.get("queue_threshold") is not None:
        raise Refused(
            400, "queue_threshold: must be left out, this server does not do it", "queue_threshold", "unsupported"
        )


def _refusing(refused: Refused) -> Endpoint:
    async def refuse(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise refused

    return refuse
