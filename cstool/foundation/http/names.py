"""Names under which a server may be asked.

A page from elsewhere may have its name lead to this machine (DNS rebinding), and would then be of the same origin as a
server here. A browser says which name it used; only a number or a name of this machine is accepted.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Sequence


def is_own(hosts: Sequence[str], names: Collection[str]) -> bool:
    """Say whether a request was made for this machine: by a number, or a name of it.

    Args:
        hosts: the request's Host headers, of which there must be one
        names: of this machine, in lower case
    """
    if len(hosts) != 1:
        return False
    name = host_of(hosts[0])
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names
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
    """Return names under which a server that listens at an address is found."""
    name = socket.gethostname().lower()
    return {"localhost", host.lower(), name, name.partition(".")[0]}


def is_loopback(host: str) -> bool:
    """Say whether an address, a number, is one of this machine that others cannot reach."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _is_port(text: str) -> bool:
    return text.startswith(":") and (text == ":" or (text[1:].isascii() and text[1:].isdigit()))
