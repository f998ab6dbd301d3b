"""Requests that are not answered as asked: an HTTP status, and a JSON object that says why."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from cstool.foundation.errors import CheckpointError

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    421: "permission_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    501: "invalid_request_error",
}


class Refused(Exception):
    """A request that is not answered as asked.

    Args:
        status: of HTTP
        message: says why
        param: name of the field that is at fault
        code: a word for programs
        headers: further headers of the answer
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def document(self) -> dict[str, Any]:
        """The body of the answer, also the last event of a stream that fails."""
        kind = _TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def content(self) -> bytes:
        """The body as bytes."""
        return encoded(self.document())


def busy(*, is_ending: bool, half_s: float = 0.0) -> Refused:
    """The refusal of a request that finds no place.

    Args:
        is_ending: whether the server is about to end; else its queue is full
        half_s: time until half of the queue will have had its turn [s]; clients are told a minute at most
    """
    if is_ending:
        return Refused(503, "the server is about to end", code="shutting_down", headers={"Retry-After": "5"})
    wait_s = min(60, max(1, math.ceil(half_s)))
    return Refused(429, "too many requests wait already", code="queue_full", headers={"Retry-After": str(wait_s)})


def changed(error: CheckpointError) -> Refused:
    """The refusal of a request that would mix the weights of two files."""
    return Refused(503, f"{error.message}; start the server again", code="checkpoint_changed")


def encoded(document: Any) -> bytes:
    """Return JSON as it is sent."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
