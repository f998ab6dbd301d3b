"""The viewer of the page, and the viewer's permissions on the files of a job.

On the loopback device the kernel knows the owner of the socket at the other end; from elsewhere a token identifies the
viewer.
"""

from __future__ import annotations

import grp
import hmac
import os
import pwd
import socket
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cstool.foundation.http.names import is_loopback
from cstool.foundation.http.secret import shown_token, user_name

Address = tuple[str, int]
"""host, as a number, and port"""

_ESTABLISHED = "01"
_OVERFLOW = 65534
"""the kernel's number for a user without a number here, unless it was told otherwise"""
_FORWARDING = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""headers of a proxy: the owner of its socket runs the proxy, and is not the viewer"""


@dataclass(frozen=True)
class Viewer:
    """A viewer of the page.

    Args:
        user_id: None: unknown
        has_token: whether the viewer showed the token, so may change something
        is_here: whether the viewer is on this machine, so may look without a token
    """

    user_id: int | None
    has_token: bool = False
    is_here: bool = False

    @property
    def user(self) -> str:
        """The name of the user; "" where unknown."""
        return "" if self.user_id is None else user_name(self.user_id)


def viewer_of(
    headers: Mapping[str, str], client: Address | None, server: Address | None, token: bytes | None
) -> Viewer:
    """Identify the viewer: the owner of the token, which is this user, or of the socket at the connection's other end.

    Args:
        headers: of the request, by name in lower case
        client, server: the ends of the connection; None: unknown
        token: that may be shown; None where there is none
    """
    user_id, is_here = None, False
    if client is not None and server is not None and not any(name in headers for name in _FORWARDING):
        is_here = is_loopback(client[0]) and is_loopback(server[0])
        user_id = user_of_peer(client, server)
    if token is not None and hmac.compare_digest(shown_token(headers), token):
        return Viewer(os.geteuid(), has_token=True, is_here=is_here)
    return Viewer(user_id, is_here=is_here)


def user_of_peer(client: Address, server: Address, proc: Path = Path("/proc/net")) -> int | None:
    """Return the owner of the other end of a connection over the loopback device; None where that is not known.

    The columns of /proc/net/tcp are described in Linux's `Documentation/networking/proc_net_tcp.rst`. A socket that is
    closed already has no owner, and is listed with user 0 and inode 0: such a line does not count.

    Args:
        client, server: the ends of the connection
        proc: where the kernel lists connections
    """
    if not is_loopback(client[0]) or not is_loopback(server[0]):
        return None
    for family, name in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        ends = _ends(family, client), _ends(family, server)
        if None in ends:
            continue
        try:
            lines = (proc / name).read_text("ascii").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        for line in lines[1:]:
            words = line.split()
            if len(words) < 10 or tuple(words[1:3]) != ends:
                continue
            if words[3] != _ESTABLISHED or words[9] == "0" or int(words[7]) == _OVERFLOW:
                return None
            return int(words[7])
    return None


def may_read(user_id: int | None, entry: os.stat_result, *, bits: int = 4) -> bool:
    """Say whether a user may read a file, or search a folder, by its permission bits.

    Args:
        user_id: None: unknown, refused
        entry: the file's entry in the file system
        bits: 4 to read, 1 to search
    """
    if user_id is None:
        return False
    if user_id == 0:
        return True
    mode = stat.S_IMODE(entry.st_mode)
    if entry.st_uid == user_id:
        return bool(mode >> 6 & bits)
    if entry.st_gid in _groups(user_id):
        return bool(mode >> 3 & bits)
    return bool(mode & bits)


def may_reach(user_id: int | None, folder: Path) -> bool:
    """Say whether a user may search a folder, and all folders above it."""
    real = Path(os.path.realpath(folder))
    try:
        return all(may_read(user_id, os.stat(part), bits=1) for part in (real, *real.parents))
    except OSError:
        return False


def _ends(family: int, address: Address) -> str | None:
    """Return an end of a connection as the kernel writes it: words of the host's byte order, in hexadecimal digits."""
    host, port = address
    # Either end may have a socket of the other family than the one that shows the address: IPv4 is within IPv6.
    host = host.partition("%")[0].removeprefix("::ffff:")
    if family == socket.AF_INET6 and ":" not in host:
        host = f"::ffff:{host}"
    try:
        packed = socket.inet_pton(family, host)
    except OSError:
        return None
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"


def _groups(user_id: int) -> set[int]:
    try:
        user = pwd.getpwuid(user_id)
    except KeyError:
        return set()
    try:
        return set(os.getgrouplist(user.pw_name, user.pw_gid))
    except OSError:
        return {user.pw_gid, *(group.gr_gid for group in grp.getgrall() if user.pw_name in group.gr_mem)}
