"""Serve the page of an appliance, on this machine alone unless a token admits viewers from elsewhere."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cstool.foundation.errors import CstoolError
from cstool.foundation.http.listening import USUAL_HOST, address, listen, resolved
from cstool.foundation.http.names import is_loopback, own_names
from cstool.foundation.http.secret import read_token

if TYPE_CHECKING:
    import uvicorn

    from cstool.appliance.queue.root import Root

USUAL_PORT = 8650
_FAREWELL_S = 2
"""for answers that are under way when it ends"""


def serve(
    root: Root,
    host: str = USUAL_HOST,
    port: int = USUAL_PORT,
    token_file: Path | None = None,
    *,
    say: Callable[[str], object] = print,
) -> None:
    """Serve the page until Ctrl-C or SIGTERM.

    Args:
        root: of the appliance
        host: address to listen at; another than this machine's own needs a token
        port: to listen at; 0 for any that is free
        token_file: has the token with which a viewer may cancel and label; of this user, mode 0600
        say: takes a line, once the page can be reached: its address

    Raises:
        CstoolError: it cannot be served so
    """
    server, listener = make_server(root, host, port, token_file)
    with listener, _ended_by_sigterm(server), contextlib.suppress(KeyboardInterrupt):
        say(address(host, listener))
        server.run(sockets=[listener])


def make_server(root: Root, host: str, port: int, token_file: Path | None) -> tuple[uvicorn.Server, socket.socket]:
    """Make the server that `serve` runs, and its socket, which the caller closes.

    Raises:
        CstoolError: it cannot be served so
    """
    try:
        import uvicorn

        from cstool.appliance.page.app import make_app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "uvicorn"):
            raise
        raise CstoolError(f"the page needs {missing}, which is not installed", "pip install 'cstool[page]'") from None
    from cstool.appliance.queue.queue import Queue

    token = None if token_file is None else read_token(token_file)
    family, where = resolved(host, port)
    if token is None and not is_loopback(where[0]):
        raise CstoolError(
            f"--host {host}: others can reach this address, so --token_file must be given",
            f"--host {USUAL_HOST} is for this machine alone",
        )
    with Queue(root, makes=False):
        pass  # what is wrong with it is better known before the page is there
    app = make_app(root, token, own_names(host))
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        # Who looks is whoever has the connection, not what a header says.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_FAREWELL_S,
    )
    return uvicorn.Server(config), listen(family, where, host)


@contextlib.contextmanager
def _ended_by_sigterm(server: uvicorn.Server) -> Iterator[None]:
    """Have SIGTERM end the page as Ctrl-C does, and this process go on from there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: object) -> None:
        server.should_exit = True

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
