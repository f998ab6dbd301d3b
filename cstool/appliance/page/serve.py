"""Serve the page of an appliance, on this machine alone unless a token admits viewers from elsewhere."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cstool.appliance.page.viewer import is_loopback, read_token
from cstool.foundation.errors import CstoolError

if TYPE_CHECKING:
    import uvicorn

    from cstool.appliance.queue.root import Root

USUAL_HOST = "127.0.0.1"
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
        from cstool.appliance.page.guards import own_names
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "uvicorn"):
            raise
        raise CstoolError(f"the page needs {missing}, which is not installed", "pip install 'cstool[page]'") from None
    from cstool.appliance.queue.queue import Queue

    token = None if token_file is None else read_token(token_file)
    family, where = _resolved(host, port)
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
    return uvicorn.Server(config), _listener(family, where, host)


def address(host: str, listener: socket.socket) -> str:
    """Return where a browser finds the page."""
    shown, port = listener.getsockname()[:2]
    name = socket.gethostname() if shown in ("0.0.0.0", "::") else host
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if not 0 <= port <= 65535:
        raise CstoolError(f"--port: must be 0 to 65535, got {port}")
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise CstoolError(f"--host {host}: must be an address of this machine, is none") from None
    family, _, _, _, where = min(found, key=lambda one: one[0] != socket.AF_INET)
    return socket.AddressFamily(family), (str(where[0]), int(where[1]))


def _listener(family: socket.AddressFamily, where: tuple[str, int], host: str) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(128)  # from here on a browser waits for the answer
    except OSError as error:
        listener.close()
        raise CstoolError(
            f"--host {host} --port {where[1]}: cannot listen there, got: {error.strerror}",
            "--port 0 takes any that is free",
        ) from None
    return listener


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
