"""A model in this process, asked as a server is, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from cstool.foundation.errors import AnswerError
from cstool.serving import chats, completions
from cstool.serving.asking import cancel
from cstool.serving.refusals import Refused
from cstool.serving.replies import Mailbox
from cstool.serving.schema import ChatRequest, CompletionRequest, parsed
from cstool.serving.served import Served
from cstool.serving.shapes import KEEP_ALIVE


class _Kind(NamedTuple):
    request: Any
    plan: Callable[..., Any]
    answers: Callable[..., Any]


_KINDS = {
    "/v1/chat/completions": _Kind(ChatRequest, chats.plan, chats.Chat),
    "/v1/completions": _Kind(CompletionRequest, completions.plan, completions.Completions),
}


class Local:
    """Asks a model.

    Args:
        served: the model
    """

    def __init__(self, served: Served) -> None:
        self._served = served

    def events(self, path: str, document: Mapping[str, Any]) -> Generator[Any, None, None]:
        """Yield the events of an answer, as `Client.events` does; closing the iterator ends the answer.

        Raises:
            AnswerError: the request is refused, or the answer fails
        """
        try:
            yield from self._events(_KINDS[path], {**document, "stream": True})
        except Refused as refused:
            raise AnswerError(refused.message, code=refused.code) from None

    def _events(self, kind: _Kind, document: Mapping[str, Any]) -> Generator[Any, None, None]:
        served = self._served
        if served.engine is not None and (failure := served.engine.failure) is not None:
            raise Refused(500, f"the model has failed, and answers no more: {str(failure) or type(failure).__name__}")
        served.check_weights()
        plan = kind.plan(served, parsed(kind.request, document))
        loop, came = asyncio.new_event_loop(), SimpleQueue[bytes | BaseException | None]()
        answers = kind.answers(served, plan, Mailbox(loop))
        # The loop has a thread of its own: Ctrl-C, which comes to this one at any time, leaves a loop in disorder.
        Thread(target=_collect, args=(loop, answers, came), name="answer", daemon=True).start()
        try:
            while (content := came.get()) is not None:
                if isinstance(content, BaseException):
                    raise content
                if content != KEEP_ALIVE:
                    yield json.loads(content.removeprefix(b"data: "))
        finally:
            cancel(answers.replies)


def _collect(loop: asyncio.AbstractEventLoop, answers: Any, came: SimpleQueue[bytes | BaseException | None]) -> None:
    """Put the events of answers into a queue, and behind them None, or the error that ended them."""

    async def collect() -> None:
        async for content in answers.events():
            came.put(content)

    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(collect())
        came.put(None)
    except BaseException as error:
        came.put(error)
