"""Messages between a host script and the simulator process: a header of JSON, and an array of 32-bit words.

Each is two lengths in 8 bytes, little-endian (header, words), the header, and the words. Nothing in it is code.
`journal` keeps them in a file.
"""

import json
import socket
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

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
    _put(connection.sendall, header, words)


def receive(connection: socket.socket) -> tuple[dict[str, Any], Words] | None:
    """Return the next message; None when the other side is gone."""

    def fill(view: memoryview) -> int:
        try:
            return connection.recv_into(view)
        except ConnectionError:
            return 0

    return _take(fill)


def write(file: BinaryIO, header: dict[str, Any], words: Words = NO_WORDS) -> None:
    """Write one message to a file.

    Raises:
        OSError: it cannot be written
    """
    _put(file.write, header, words)


def read(file: BinaryIO) -> tuple[dict[str, Any], Words] | None:
    """Return the next message of a file; None at its end, also within a message that was cut short."""
    return _take(file.readinto)  # type: ignore[attr-defined]


def _put(put: Callable[[Any], object], header: dict[str, Any], words: Words) -> None:
    text = json.dumps(header).encode()
    put(_LENGTHS.pack(len(text), words.size) + text)
    if words.size:
        put(np.ascontiguousarray(words, "<u4").data.cast("B"))


def _take(fill: Callable[[memoryview], int]) -> tuple[dict[str, Any], Words] | None:
    start = _read(fill, _LENGTHS.size)
    if start is None:
        return None
    length, count = _LENGTHS.unpack(start)
    text = _read(fill, length)
    raw = _read(fill, count * 4)
    if text is None or raw is None:
        return None
    return json.loads(text), np.frombuffer(raw, "<u4")


def _read(fill: Callable[[memoryview], int], size: int) -> bytearray | None:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        got = fill(view)
        if not got:
            return None
        view = view[got:]
    return buffer
