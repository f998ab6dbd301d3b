"""The application: the page, its style and its script, and the JSON below /api."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cstool.appliance.page.answers import Refused
from cstool.appliance.page.api import Api
from cstool.appliance.page.guards import Guards
from cstool.appliance.queue.appliance import appliance_status
from cstool.appliance.queue.queue import Queue
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    from cstool.appliance.queue.appliance import ApplianceStatus
    from cstool.appliance.queue.root import Root

_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def make_app(
    root: Root,
    token: bytes | None,
    names: Collection[str] = (),
    *,
    status: Callable[[Root], ApplianceStatus] = appliance_status,
) -> Starlette:
    """Make the application.

    Args:
        root: of the appliance
        token: that lets a viewer cancel and label; None where no viewer may
        names: of this machine that a browser may call it by, beside localhost and numbers
        status: says how the appliance is
    """
    api: list[Api] = []

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with Queue(root, makes=False) as queue:
            api.append(Api(root, queue, status, token))
            yield
            api.clear()

    def endpoint(method: str) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            found: Response = await getattr(api[0], method)(request)
            return found

        return answer

    files = sorted(path for path in _STATIC.iterdir() if path.suffix in _TYPES)
    routes = [Route("/" if path.suffix == ".html" else f"/{path.name}", _file(path)) for path in files]
    routes += [
        Route("/api/overview", endpoint("overview")),
        Route("/api/jobs/{name}", endpoint("job")),
        Route("/api/jobs/{name}/log", endpoint("log")),
        Route("/api/jobs/{name}/curve", endpoint("curve")),
        Route("/api/jobs/{name}/cancel", endpoint("cancel"), methods=["POST"]),
        Route("/api/jobs/{name}/labels", endpoint("label"), methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guards, names=names)],
        exception_handlers={Refused: _refused, CstoolError: _user_error, HTTPException: _http_error},
        lifespan=lifespan,
    )


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    content, kind = path.read_bytes(), _TYPES[path.suffix]
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    async def answer(request: Request) -> Response:
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return answer


async def _refused(_: Request, error: Exception) -> Response:
    return _error(getattr(error, "status", 400), str(error))


async def _user_error(request: Request, error: Exception) -> Response:
    hint = error.hint if isinstance(error, CstoolError) else None
    # Of what was asked for, or of the queue itself.
    status = 409 if request.method == "POST" else 503
    return _error(status, error.message if isinstance(error, CstoolError) else str(error), hint)


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    words = {404: "there is no such page", 405: "this can only be looked at"}
    response = _error(status, words.get(status, "that is not possible"))
    response.headers.update(getattr(error, "headers", None) or {})
    return response


def _error(status: int, message: str, hint: str | None = None) -> Response:
    content = json.dumps({"error": message, "hint": hint}).encode()
    return Response(content, status, {"Cache-Control": "no-store"}, "application/json")
