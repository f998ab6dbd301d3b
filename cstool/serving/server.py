"""The server: connections with limits, and an end that lets answers end first."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from cstool.foundation.words import counted
from cstool.serving.refusals import Refused
from cstool.serving.served import Limits

log = logging.getLogger("cstool")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_LAX = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""ends of lines that h11 takes and others do not, or take for a part of the line before"""


def protocol(limits: Limits) -> type[H11Protocol]:
    """Return the class of connections, with a time for headers and for reading, and a number of them at a time."""

    class Connection(H11Protocol):
        """A connection."""

        def connection_made(self, transport: Any) -> None:
            """Begin, or refuse to."""
            super().connection_made(transport)
            self._unsent: int | None = None
            self._watch = self.loop.call_later(limits.write_s, self._look)
            self._late = self.loop.call_later(limits.headers_s, self._is_late)
            if len(self.connections) > limits.connections:
                refused = Refused(503, "too many connections", code="too_many_connections")
                self._answer_and_close("503 Service Unavailable", refused, "Retry-After: 1\r\n")

        def handle_events(self) -> None:
            """Handle the bytes that have come."""
            before = self.cycle
            if self.conn.their_state is h11.IDLE:
                content = self.conn.trailing_data[0]
                blank = _BLANK_LINE.search(content)
                if _LAX.search(content, 0, len(content) if blank is None else blank.end()):
                    self.send_400_response("lines must end with CR LF, and none may go on in the next")
                    return
            super().handle_events()
            if self.cycle is not before:
                self._late.cancel()

        def on_response_complete(self) -> None:
            """Wait for the next request, whose headers have their time from their first byte on."""
            super().on_response_complete()
            self._late.cancel()

        def data_received(self, data: bytes) -> None:
            """Take bytes."""
            cycle: Any = self.cycle  # None before the first request, whatever uvicorn's types say
            if self._late.cancelled() and (cycle is None or cycle.response_complete):
                self._late = self.loop.call_later(limits.headers_s, self._is_late)
            super().data_received(data)

        def resume_writing(self) -> None:
            """Go on: the client has read."""
            self._unsent = None
            super().resume_writing()

        def _look(self) -> None:
            """Drop a client that reads nothing: its connection would never close, as it waits to be read to the end."""
            size = self.transport.get_write_buffer_size()
            waits = size > 0 and (self.flow.write_paused or self.transport.is_closing())
            if waits and self._unsent is not None and size >= self._unsent:
                self.transport.abort()
                return
            self._unsent = size if waits else None
            self._watch = self.loop.call_later(limits.write_s, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            """End."""
            self._late.cancel()
            self._watch.cancel()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            """Refuse bytes that are no HTTP, or may mean two things."""
            error = sys.exception()  # of h11, whose reason uvicorn leaves out
            status = 400
            if isinstance(error, h11.RemoteProtocolError):
                msg, status = str(error).partition(": bytearray(")[0], error.error_status_hint
            refused = Refused(status, f"the request must be HTTP/1.1: {msg}", code="invalid_http")
            self._answer_and_close(f"{status} {HTTPStatus(status).phrase}", refused)

        def _is_late(self) -> None:
            refused = Refused(408, f"the headers must come within {limits.headers_s:g} s")
            self._answer_and_close("408 Request Timeout", refused)

        def _answer_and_close(self, status: str, refused: Refused, more: str = "") -> None:
            content = refused.content()
            head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
            if not self.transport.is_closing():
                self.transport.write(f"{head}{more}Connection: close\r\n\r\n".encode() + content)
                self.transport.close()

    return Connection


class DrainingServer(uvicorn.Server):
    """Ends by the first signal when all answers have ended, and by the second at once.

    Args:
        app: the application
        limits: of connections
        drain_s: most time for answers to end
        running: returns the number of answers under way
        close: ends the answers that are still under way
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, drain_s: float, running: Callable[[], int], close: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol(limits),
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                # Who asks is whoever has the connection, not what a header says.
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._drain_s, self._running, self._close = drain_s, running, close
        self.is_ending = False
        self._end_at: float | None = None

    def end(self) -> None:
        """Take no new requests, let answers end, then end."""
        self.is_ending = True
        self._end_at = time.monotonic() + self._drain_s
        if running := self._running():
            log.warning(
                f"No more requests: {counted(running, 'answer')} under way, at most {self._drain_s:g} s for the rest. "
                "Another signal ends it at once."
            )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Take a signal."""
        if self.is_ending:
            self.should_exit = self.force_exit = True
        else:
            self.end()

    async def on_tick(self, counter: int) -> bool:
        """Look whether it may end; called ten times a second."""
        if self._end_at is not None and not self.should_exit:
            # An answer that the engine has ended is sent in the next moments, and read as fast as its client can.
            tasks = [task for task in self.server_state.tasks if not task.done()]
            unsent = sum(each.transport.get_write_buffer_size() for each in self.server_state.connections)
            if (self._running() == 0 and not tasks and not unsent) or time.monotonic() > self._end_at:
                self.should_exit = True
        if self.should_exit:
            await asyncio.get_running_loop().run_in_executor(None, self._close)
        return await super().on_tick(counter)
