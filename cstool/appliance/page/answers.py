"""Requests with JSON in them, and answers of JSON."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

_MOST_BODY = 65536


class Refused(Exception):
    """A request that is not answered as asked.

    Args:
        status: of HTTP
        message: why
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def body(request: Request) -> dict[str, Any]:
    """Return the object in the body of a request."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _MOST_BODY:
            raise Refused(413, f"must have at most {_MOST_BODY} bytes")
    try:
        value = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        raise Refused(400, "must be JSON") from None
    if not isinstance(value, dict):
        raise Refused(400, "must be an object of JSON")
    return value


def json_answer(request: Request, value: dict[str, Any]) -> Response:
    """Answer with JSON; see `answer`."""
    return answer(request, encoded(value))


def encoded(value: dict[str, Any]) -> bytes:
    """Return JSON as it is sent."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def answer(request: Request, content: bytes) -> Response:
    """Answer with JSON, or with 304 where the page has it already. The time is a header, so that it changes nothing."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-store", "X-Appliance-Time": f"{time.time():.3f}"}
    if request.method == "GET" and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)
