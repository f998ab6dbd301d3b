"""Headers of every answer of the page, and refusal of requests under a foreign name."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Guards:
    """Middleware: security headers; requests that were made for another host are refused.

    A page from elsewhere may have its name lead to this machine (DNS rebinding), and would then be of the same origin
    as this one. The browser says which name it used, and only a number or a name of this machine is accepted.

    Args:
        app: the guarded application
        names: of this machine, beside localhost and all numbers
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app = app
        self.names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        app = self.app if self.accepts(Headers(scope=scope).getlist("host")) else _REFUSED
        await app(scope, receive, send_guarded)

    def accepts(self, hosts: list[str]) -> bool:
        """Say whether a request was made for this machine; see the class."""
        if len(hosts) != 1:
            return False
        name = host_of(hosts[0])
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True


def host_of(header: str) -> str:
    """Return the host in a Host header, in lower case, without the port and a last dot; "" where there is none."""
    text = header.strip().lower()
    if text.startswith("["):
        host, closing, port = text[1:].partition("]")
        return host if closing and (not port or _is_port(port)) else ""
    host, colon, port = text.partition(":")
    return "" if colon and not _is_port(f":{port}") else host.removesuffix(".")


def own_names(host: str) -> set[str]:
    """Return names under which a page that listens at an address is found."""
    name = socket.gethostname().lower()
    return {host.lower(), name, name.partition(".")[0]}


def _is_port(text: str) -> bool:
    return text.startswith(":") and (text == ":" or (text[1:].isascii() and text[1:].isdigit()))


_REFUSED = PlainTextResponse("This page is not served under that name.\n", status_code=421)
