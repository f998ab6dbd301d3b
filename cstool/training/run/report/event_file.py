"""Event files as TensorBoard reads them: scalars by tag and step, in records with checksums.

Written here, record by record, rather than by a library: a file holds whole records, whenever a run is killed,
and a full disk is found out where it can be told.

Source: TensorFlow's tfrecord format (length, masked CRC-32C of it, data, masked CRC-32C of that; little-endian) and its
messages Event, Summary and SessionLog (tensorflow/core/util/event.proto, framework/summary.proto) in the wire format of
protocol buffers.
"""

import struct
from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

ROW_BYTES = 64
"""number of bytes that the checksum takes at a time"""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SESSION_STARTS = 1


def version_event(wall_time_s: float) -> bytes:
    """Return the record that every event file begins with."""
    return _record(_event(wall_time_s, _field(3, b"brain.Event:2")))


def restart_event(wall_time_s: float, step: int) -> bytes:
    """Return the record that lets readers forget earlier files' records of a step and of later ones."""
    return _record(_event(wall_time_s, _number(2, step) + _field(7, _number(1, _SESSION_STARTS))))


def scalars_event(wall_time_s: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return the record of some scalars of a step, by tag; they are kept as float32."""
    # Numbers too large for float32 are infinite there.
    with np.errstate(over="ignore"):
        numbers = np.array([*values.values()], np.float64).astype("<f4")
    summary = b"".join(
        _field(1, _field(1, tag.encode()) + _key(2, _FIXED32) + number.tobytes())
        for tag, number in zip(values, numbers, strict=True)
    )
    return _record(_event(wall_time_s, _number(2, step) + _field(5, summary)))


def _event(wall_time_s: float, rest: bytes) -> bytes:
    return _key(1, _FIXED64) + struct.pack("<d", wall_time_s) + rest


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value)


def _field(field: int, data: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """Return a number from 0 in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes.

    Byte by byte up to a multiple of a row, then row by row: the effect of each byte of a row on the remainder does not
    depend on the others, so they are looked up at once.

    Source: RFC 3720, appendix B.4, for the polynomial.
    """
    tables, crc = _crc_tables(), 0xFFFFFFFF
    head = len(data) % ROW_BYTES
    for byte in data[:head]:
        crc = int(tables[0, (crc ^ byte) & 0xFF]) ^ crc >> 8
    rows = np.frombuffer(data, np.uint8, offset=head).reshape(-1, ROW_BYTES)
    after = np.arange(ROW_BYTES - 1, -1, -1)
    first, second, third, fourth = tables[after[:4]].tolist()
    for row in np.bitwise_xor.reduce(tables[after, rows], axis=1).tolist():
        crc = row ^ first[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ fourth[crc >> 24]
    return crc ^ 0xFFFFFFFF


@cache
def _crc_tables() -> NDArray[np.uint32]:
    """Contribution of each byte to a remainder, (bytes after it, value), bits reversed."""
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, crc >> 1 ^ np.uint32(0x82F63B78), crc >> 1)
    tables = np.empty((ROW_BYTES, 256), np.uint32)
    tables[0] = crc
    for number in range(1, ROW_BYTES):
        before = tables[number - 1]
        tables[number] = crc[before & 0xFF] ^ before >> 8
    return tables
