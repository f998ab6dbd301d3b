"""Refusal of requests that were made for another host, by a foreign page, or without the key."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cstool.foundation.http.names import is_own
from cstool.foundation.http.secret import shown_token
from cstool.serving.page import PAGE_PATHS
from cstool.serving.refusals import Refused
from cstool.serving.streams import send_bytes, send_json

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}
OPEN_PATHS = ("/health", "/public/v1/models", *PAGE_PATHS)
"""asked without the key; the page holds no secret"""


class Guards:
    """Middleware.

    Args:
        app: the guarded application
        names: of this machine, beside all numbers; see `cstool.foundation.http.names`
        key: that clients show; None where there is none
        origins: pages from elsewhere that may ask, such as https://example.org
        open_paths: asked without the key
    """

    def __init__(
        self,
        app: ASGIApp,
        names: Collection[str],
        key: bytes | None = None,
        origins: Collection[str] = (),
        open_paths: Collection[str] = OPEN_PATHS,
    ) -> None:
        self._app, self._names, self._key = app, names, key
        self._origins, self._open_paths = frozenset(origins), frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = origin if origin in self._origins else None

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    found.setdefault(name, value)
                if allowed is not None:
                    found["Access-Control-Allow-Origin"] = allowed
                    found.add_vary_header("Origin")
            await send(message)

        try:
            self._check(scope, headers)
        except Refused as refused:
            await send_json(send_guarded, refused.document(), refused.status, refused.headers)
            return
        if scope["method"] == "OPTIONS" and allowed is not None:
            asked = headers.get("access-control-request-headers", "")
            more = {"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Allow-Headers": asked}
            await send_bytes(send_guarded, b"", "text/plain", 204, {**more, "Access-Control-Max-Age": "600"})
            return
        await self._app(scope, receive, send_guarded)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Raise Refused for a request that is not to be answered."""
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy before this server may have taken the other one, and see another request in the rest.
            rule = "Content-Length: must be left out where there is Transfer-Encoding, got both"
            raise Refused(400, rule, code="invalid_http", headers={"Connection": "close"})
        hosts = headers.getlist("host")
        # A page that has its name lead here does not know the key.
        if len(hosts) != 1 or (self._key is None and not is_own(hosts, self._names)):
            raise Refused(421, "this server is not asked under that name", code="wrong_host")
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and not _is_of(origin, hosts[0]):
            raise Refused(403, f"Origin: must be this server or of --allow_origin, got {origin[:100]}", code="origin")
        if self._key is None or scope["path"] in self._open_paths or scope["method"] == "OPTIONS":
            return
        if not hmac.compare_digest(shown_token(headers), self._key):
            raise Refused(
                401,
                "Authorization: must be Bearer and the key of this server",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _is_of(origin: str, host: str) -> bool:
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == host.strip().lower()
