"""The page to talk to a model at: an HTML file, its style and its scripts, and their headers."""

from __future__ import annotations

from pathlib import Path

from starlette.types import Receive, Scope, Send

from cstool.serving.streams import send_bytes

_STATIC = Path(__file__).parent / "static"
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
PAGE_PATHS = {
    f"/{name}".removesuffix("index.html"): name
    for name in ("index.html", "page.css", "page.js", "server.js", "turns.js", "icon.svg")
}
"""names of the files by their paths"""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


async def send_page(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer with a file of the page.

    Args:
        scope: its path is one of `PAGE_PATHS`
    """
    file = _STATIC / PAGE_PATHS[scope["path"]]
    await send_bytes(send, file.read_bytes(), f"{_KINDS[file.suffix]}; charset=utf-8", headers=_HEADERS)
