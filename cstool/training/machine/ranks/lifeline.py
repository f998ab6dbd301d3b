"""Connections beside MPI, of each rank to rank 0, whose end the kernel reports at once when a process dies."""

import secrets
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from cstool.training.machine.ranks.link import Link

CONNECT_S = 10.0
"""longest time for connecting; without a connection, a death is told by silence alone [s]"""
ANY_PORT = 9
"""of an address that is looked for, not connected to"""


def tie(link: Link, hosts: dict[int, str], lost: Callable[[int], None]) -> None:
    """Tie each rank to rank 0; all ranks call it at once.

    Args:
        hosts: takes the names of the hosts, by rank
        lost: is called, by a thread, for each rank that died: at rank 0 for any other, elsewhere for rank 0

    Raises:
        ClusterError: the link is broken
    """
    if link.rank == 0:
        _hold(link, hosts, lost)
    else:
        link.send(0, "host", socket.gethostname())
        hosts[0], address, token = link.receive(0, "lifeline")
        if address is not None:
            with suppress(OSError):
                connection = socket.create_connection(address, CONNECT_S)
                connection.settimeout(None)
                connection.sendall(token + link.rank.to_bytes(4))
                _in_a_thread(lambda: _wait_for_the_end(connection, lost))


def _in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="lifeline", daemon=True).start()


def _wait_for_the_end(connection: socket.socket, lost: Callable[[int], None]) -> None:
    with suppress(OSError):
        while connection.recv(1):
            pass
    lost(0)


def _hold(link: Link, hosts: dict[int, str], lost: Callable[[int], None]) -> None:
    """Listen at an address for each of the other ranks, and tell them these addresses."""
    token = secrets.token_bytes(16)
    hosts[0] = socket.gethostname()
    listeners: dict[str, socket.socket] = {}
    for rank in range(1, link.ranks):
        hosts[rank] = link.receive(rank, "host")
        address = None
        with suppress(OSError):
            own = "127.0.0.1" if hosts[rank] == hosts[0] else _address_towards(hosts[rank])
            if own not in listeners:
                listeners[own] = socket.create_server((own, 0), backlog=link.ranks)
            address = listeners[own].getsockname()[:2]
        link.send(rank, "lifeline", (hosts[0], address, token))
    if listeners:
        _in_a_thread(lambda: _watch(list(listeners.values()), token, lost))


def _address_towards(host: str) -> str:
    """The address of this host by which another one sees it; raise OSError where there is none."""
    found = socket.getaddrinfo(host, ANY_PORT, socket.AF_INET, socket.SOCK_DGRAM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the system only chooses a way.
        probe.connect(found[0][4])
        return str(probe.getsockname()[0])


def _watch(listeners: list[socket.socket], token: bytes, lost: Callable[[int], None]) -> None:
    """Take connections that show the token, and tell of the ones that end."""
    with selectors.DefaultSelector() as selector:
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        said: dict[socket.socket, bytes] = {}
        while True:
            for key, _ in selector.select():
                found = key.fileobj
                assert isinstance(found, socket.socket)
                if found in listeners:
                    connection, _ = found.accept()
                    said[connection] = b""
                    selector.register(connection, selectors.EVENT_READ)
                    continue
                try:
                    more = found.recv(64)
                except OSError:
                    more = b""
                said[found] += more
                is_known = len(said[found]) == len(token) + 4 and secrets.compare_digest(said[found][:-4], token)
                if more and (is_known or len(said[found]) < len(token) + 4):
                    continue
                selector.unregister(found)
                found.close()
                if is_known:
                    lost(int.from_bytes(said[found][-4:]))
                del said[found]
