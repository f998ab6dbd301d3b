"""Answers over HTTP: whole, or as a stream of events; clients that go, and clients that do not read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

from cstool.serving.refusals import Refused, encoded
from cstool.serving.replies import TooSlow
from cstool.serving.shapes import event

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


async def send_json(send: Send, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Send a whole answer."""
    await send_bytes(send, encoded(document), "application/json", status, headers)


async def send_bytes(
    send: Send, content: bytes, kind: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole answer of a kind of content."""
    found = {"Content-Type": kind, "Content-Length": str(len(content)), "Cache-Control": "no-store", **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": _raw(found)})
    await send({"type": "http.response.body", "body": content})


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


async def while_there(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of some work; end it when the client goes.

    Raises:
        ClientDisconnect: the client is gone
    """

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work()), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        for each in (task, watch):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


async def send_events(send: Send, events: AsyncIterator[bytes], write_s: float) -> None:
    """Send a stream of events, and its end.

    Args:
        events: the parts of the stream; a `Refused` becomes the last of them
        write_s: time for a client to make room

    Raises:
        TooSlow: it does not
    """

    async def write(message: dict[str, Any]) -> None:
        # Not wait_for, which in Python 3.11 may lose the cancellation of an answer whose client is gone.
        try:
            async with asyncio.timeout(write_s):
                await send(message)
        except TimeoutError:
            raise TooSlow from None
        # A send that need not wait lets nobody else have a turn: not even the news that the client is gone.
        await asyncio.sleep(0)

    headers = {
        "Content-Type": "text/event-stream; charset=utf-8",
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    await write({"type": "http.response.start", "status": 200, "headers": _raw(headers)})
    try:
        async for content in events:
            await write({"type": "http.response.body", "body": content, "more_body": True})
    except Refused as refused:
        await write({"type": "http.response.body", "body": event(refused.document()), "more_body": True})
    await write({"type": "http.response.body", "body": DONE, "more_body": False})
