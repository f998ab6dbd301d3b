"""The socket that a server listens at."""

from __future__ import annotations

import socket

from cstool.foundation.errors import CstoolError

USUAL_HOST = "127.0.0.1"


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the family of an address to listen at, its number and its port.

    Raises:
        CstoolError: there is no such address or port
    """
    if not 0 <= port <= 65535:
        raise CstoolError(f"--port: must be 0 to 65535, got {port}")
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise CstoolError(f"--host {host}: must be an address of this machine, is none") from None
    family, _, _, _, where = min(found, key=lambda one: one[0] != socket.AF_INET)
    return socket.AddressFamily(family), (str(where[0]), int(where[1]))


def listen(family: socket.AddressFamily, where: tuple[str, int], host: str) -> socket.socket:
    """Return a socket that listens; from here on a client waits for the answer.

    Args:
        family, where: of `resolved`
        host: as the user wrote it

    Raises:
        CstoolError: it cannot listen there
    """
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise CstoolError(
            f"--host {host} --port {where[1]}: cannot listen there, got: {error.strerror}",
            "--port 0 takes any that is free",
        ) from None
    return listener


def address(host: str, listener: socket.socket) -> str:
    """Return where a client finds the server.

    Args:
        host: as the user wrote it
    """
    shown, port = listener.getsockname()[:2]
    name = socket.gethostname() if shown in ("0.0.0.0", "::") else host
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"
