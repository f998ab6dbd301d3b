"""The output of a run for TensorBoard: scalars by tag and step, in records with checksums, in a file of its own.

Written here, record by record, rather than by a library: a file holds whole records, whenever a run is killed,
and a full disk is found out where it can be told.

Source: TensorFlow's tfrecord format (length, masked CRC-32C of it, data, masked CRC-32C of that; little-endian) and its
messages Event, Summary and SessionLog (tensorflow/core/util/event.proto, framework/summary.proto) in the wire format of
protocol buffers.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

log = logging.getLogger("cstool")
PREFIX = "events.out.tfevents."
ROW_BYTES = 64
"""number of bytes that the checksum takes at a time"""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SESSION_STARTS = 1


class Events:
    """Writes scalars as TensorBoard reads them. Use as a context manager.

    The file is made with the first scalars. It holds whole records at any time. Records that cannot be written are
    lost, with one warning: curves are not worth a run. Once there is room again, later scalars are written.

    Args:
        folder: of the file; None for no events
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.path: Path | None = None
        """the file; None until there is one"""
        self._descriptor: int | None = None
        self._size_bytes = 0
        self._restarts_at: int | None = None
        self._warned = False

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def train_from(self, step: int) -> None:
        """Make earlier files' records of a step, and of later steps, invalid: they run again."""
        self._restarts_at = step

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Write some scalars.

        Args:
            step: of the run, from 1; of an evaluation that after which it was made
            values: by tag
        """
        if self.folder is None or not values:
            return
        now = time.time()
        record = scalars_event(now, step, values)
        try:
            if self._descriptor is None:
                self._open(self.folder, now)
            if self._restarts_at is not None:
                self._append(restart_event(now, self._restarts_at))
                self._restarts_at = None
            self._append(record)
        except OSError as error:
            if not self._warned:
                self._warned = True
                log.warning(
                    f"{self.folder}: events cannot be written, got: {error.strerror}. The run goes on; TensorBoard "
                    "will lack what comes until they can."
                )

    def _open(self, folder: Path, now: float) -> None:
        """Make a file whose name comes after the existing ones: TensorBoard reads them in that order."""
        folder.mkdir(parents=True, exist_ok=True)
        begun = (path.name.removeprefix(PREFIX).partition(".")[0] for path in folder.glob(f"{PREFIX}*"))
        newest = max((int(second) for second in begun if second.isdecimal()), default=0)
        path = folder / f"{PREFIX}{max(int(now), newest + 1)}.{socket.gethostname()}"
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self.path, self._size_bytes = path, 0

    def _append(self, record: bytes) -> None:
        """Write a record, or nothing of it."""
        assert self._descriptor is not None
        if not self._size_bytes:
            record = version_event(time.time()) + record
        try:
            written = 0
            while written < len(record):
                written += os.write(self._descriptor, record[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(record)


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
