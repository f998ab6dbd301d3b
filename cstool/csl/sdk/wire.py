"""Messages between a host script and the simulator process: a header of JSON, and an array of 32-bit words.

Each is two lengths in 8 bytes, little-endian (header, words), the header, and the words. Nothing in it is code.
"""

import json
import socket
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
_LENGTHS = struct.Struct("<II")
NO_WORDS: Words = np.zeros(0, np.uint32)


def send(connection: socket.socket, header: dict[str, Any], words: Words = NO_WORDS) -> None:
    """Send one message.

    Raises:
        OSError: the other side is gone
    """
    text = json.dumps(header).encode()
    connection.sendall(_LENGTHS.pack(len(text), words.size) + text)
    if words.size:
        connection.sendall(np.ascontiguousarray(words, "<u4").data.cast("B"))


def receive(connection: socket.socket) -> tuple[dict[str, Any], Words] | None:
    """Return the next message; None when the other side is gone."""
    start = _read(connection, _LENGTHS.size)
    if start is None:
        return None
    length, count = _LENGTHS.unpack(start)
    text = _read(connection, length)
    raw = _read(connection, count * 4)
    if text is None or raw is None:
        return None
    return json.loads(text), np.frombuffer(raw, "<u4")


def _read(connection: socket.socket, size: int) -> bytearray | None:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        try:
            got = connection.recv_into(view)
        except ConnectionError:
            got = 0
        if not got:
            return None
        view = view[got:]
    return buffer
