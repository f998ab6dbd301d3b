"""Rows of a file in memory, within a hard limit: fetched before they are asked for, kept while they are soon wanted.

The stream of weights is the same in every step, so the next requests are known, and so are the rows that are needed
last among all that could go (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
Journal 5, 1966). Of experts it is known once tokens have chosen some: the others are not fetched. All state is guarded
by one condition; files are read outside of it.
"""

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cstool.training.store.block_file import PAGE_BYTES
from cstool.training.store.ram import aligned_empty

Array = NDArray[Any]

TILE_BYTES = 2**20
"""of each array that `Store.rewrite` has in memory at a time: small enough to stay in a core's cache [bytes]"""
READERS = 2
"""threads that fetch ahead: enough to keep a disk busy"""
STAYS_BYTES = 64 * 2**10
"""rows up to this size that the stream has are driven out last: biases and norms [bytes]"""
ROUNDING = 16
"""larger buffers have a multiple of their size's power of two by this, so that panels of nearly the same size share
them"""
FIRST_AHEAD_BYTES = 32 * 2**20
"""fetched ahead at first; doubled whenever a borrower had to wait [bytes]"""
LAGGING = 8
"""places of the order: a repeated request for rows within them is by a borrower that lags behind"""
WAIT_S = 1e-3
"""a wait shorter than this is none [s]"""


class Rows(NamedTuple):
    """A range of rows of an array."""

    name: str
    start: int
    stop: int


class _Entry:
    """Rows in memory, or on their way there: the thread that made the entry fills it."""

    def __init__(self, buffer: Array, array: Array) -> None:
        self.buffer, self.array = buffer, array
        self.users = 0
        self.ready = False
        self.stale = False
        """whether the file has changed since"""
        self.error: BaseException | None = None


class PanelCache:
    """The rows in memory.

    Args:
        limit_bytes: of all buffers together
        layout: (rows) -> their shape and dtype
        read: fills an array with rows of the file
    """

    def __init__(
        self,
        limit_bytes: int,
        layout: Callable[[Rows], tuple[tuple[int, ...], np.dtype[Any]]],
        read: Callable[[Rows, Array], None],
    ) -> None:
        self.limit_bytes = limit_bytes
        self.allocated_bytes = 0
        """of all buffers now [bytes]"""
        self.ahead_bytes = FIRST_AHEAD_BYTES
        """limit of rows that are fetched ahead [bytes]"""
        self._layout, self._read = layout, read
        self._entries: dict[Rows, _Entry] = {}
        self._claimed: set[Rows] = set()
        """rows that a thread changes in the file; they must not be fetched meanwhile"""
        self._free: list[Array] = []
        self._changed = threading.Condition()
        self._order: Sequence[Rows] = ()
        self._uses: dict[Rows, list[int]] = {}
        """places of rows in the order"""
        self._doubtful: Collection[str] = frozenset()
        """arrays of which only rows in `_wanted` will be asked for"""
        self._wanted: Counter[Rows] = Counter()
        """of these: number of requests to come"""
        self._position = 0
        self._apart = 0
        self._loading = 0
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="prefetch")
        self._closed = False

    def expect(self, order: Sequence[Rows], apart: int, doubtful: Collection[str] = frozenset()) -> None:
        """Set the order in which rows will be asked for, over and over; fetching them begins. See `Store.expect`."""
        with self._changed:
            self._apart, self._doubtful = apart, doubtful
            self._wanted.clear()
            if order != self._order:
                self._order, self._uses = order, {}
                for position, rows in enumerate(order):
                    self._uses.setdefault(rows, []).append(position)
            self._position = 0
            self._fetch_ahead()

    def want(self, rows: Sequence[Rows], times: int) -> None:
        """Announce that doubtful rows will be asked for `times` times each; fetching them begins. See `Store.want`."""
        with self._changed:
            for each in rows:
                self._wanted[each] += times
            self._fetch_ahead()

    def hold(self, rows: Rows, *, fresh: bool) -> Array:
        """Return rows, which stay where they are until `let_go`, their contents any if `fresh`, or raise StoreError."""
        began = time.perf_counter()
        with self._changed:
            self._advance(rows)
            entry, is_new = self._entry_or_room(rows)
            entry.users += 1
        if is_new:
            self._fill(rows, entry, None if fresh else self._read)
        with self._changed:
            while not entry.ready and entry.error is None:
                self._changed.wait()
            if entry.error is not None:
                entry.users -= 1
                raise entry.error
            waited = time.perf_counter() - began
            if waited > WAIT_S and not fresh:
                self.ahead_bytes = min(2 * self.ahead_bytes, self.limit_bytes)
            self._fetch_ahead()
        return entry.array

    def let_go(self, rows: Rows) -> None:
        """Give rows back, as one of their holders."""
        with self._changed:
            self._entries[rows].users -= 1
            self._drop_if_stale(rows)
            self._fetch_ahead()
            self._changed.notify_all()

    def is_held(self, rows: Rows, array: Array) -> bool:
        """Say whether these rows are out, in this very array."""
        with self._changed:
            entry = self._entries.get(rows)
            return entry is not None and entry.users > 0 and entry.array is array

    def claim(self, rows: Rows) -> Array | None:
        """Announce that rows will change in the file until `disclaim`; return them if they are in memory.

        Else return None, and the rows are not fetched meanwhile.
        """
        with self._changed:
            while True:
                entry = self._entries.get(rows)
                if entry is None and rows not in self._claimed:
                    self._claimed.add(rows)
                    return None
                if entry is not None and entry.ready and not entry.stale:
                    entry.users += 1
                    return entry.array
                self._changed.wait()

    def disclaim(self, rows: Rows, array: Array | None) -> None:
        """Announce that the change is done; `array` is the result of `claim`."""
        if array is not None:
            self.let_go(rows)
            return
        with self._changed:
            self._claimed.discard(rows)
            self._fetch_ahead()
            self._changed.notify_all()

    def forget(self, name: str, start: int, stop: int, but: Rows | None = None) -> None:
        """Drop entries that overlap a range of changed rows, once they have no holder."""
        with self._changed:
            for rows, entry in list(self._entries.items()):
                if rows.name == name and rows.start < stop and start < rows.stop and rows != but:
                    entry.stale = True
                    self._drop_if_stale(rows)
            self._changed.notify_all()

    def close(self) -> None:
        """Let go of everything. Closing twice is fine."""
        with self._changed:
            self._closed = True
        self._threads.shutdown(cancel_futures=True)
        with self._changed:
            self._entries.clear()
            self._free.clear()
            self.allocated_bytes = 0

    def _entry_or_room(self, rows: Rows) -> tuple[_Entry, bool]:
        """Return the entry of rows, and whether it is new; waits for room."""
        while True:
            entry = self._entries.get(rows)
            if entry is not None and not entry.stale:
                return entry, False
            if entry is None and rows not in self._claimed:
                buffer = self._room_for(self._nbytes(rows), -1)
                if buffer is not None:
                    return self._enter(rows, buffer), True
            self._changed.wait()

    def _enter(self, rows: Rows, buffer: Array) -> _Entry:
        shape, dtype = self._layout(rows)
        array = buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        entry = self._entries[rows] = _Entry(buffer, array)
        return entry

    def _fill(self, rows: Rows, entry: _Entry, read: Callable[[Rows, Array], None] | None) -> BaseException | None:
        error: BaseException | None = None
        try:
            if read is not None:
                read(rows, entry.array)
        except BaseException as caught:
            error = caught
        with self._changed:
            entry.ready, entry.error = error is None, error
            if error is not None:
                del self._entries[rows]
                self.allocated_bytes -= entry.buffer.nbytes
            else:
                self._drop_if_stale(rows)
            self._changed.notify_all()
        return error

    def _advance(self, rows: Rows) -> None:
        """Note the progress of the stream. A borrower that lags behind moves nothing."""
        if self._wanted[rows] > 1:
            self._wanted[rows] -= 1
        else:
            del self._wanted[rows]
        uses = self._uses.get(rows, ())
        index = bisect_left(uses, self._position)
        if self._apart and index and uses[index - 1] >= self._position - LAGGING:
            return
        if index < len(uses):
            self._position = uses[index] + 1

    def _fetch_ahead(self) -> None:
        """Begin to read the next rows of the stream, as far as there is room for them."""
        ahead_bytes, count = 0, len(self._order)
        for step in range(count):
            if self._loading >= READERS or self._closed or ahead_bytes >= self.ahead_bytes:
                return
            rows = self._order[(self._position + step) % count]
            if self._is_unwanted(rows):
                continue
            ahead_bytes += self._nbytes(rows)
            if rows in self._entries or rows in self._claimed:
                continue
            buffer = self._room_for(self._nbytes(rows), step)
            if buffer is None:
                return
            self._loading += 1
            self._threads.submit(self._load, rows, self._enter(rows, buffer))

    def _load(self, rows: Rows, entry: _Entry) -> None:
        error = self._fill(rows, entry, self._read)
        with self._changed:
            self._loading -= 1
            if error is None:  # else it would be tried over and over; the next request for the rows tries again
                self._fetch_ahead()

    def _next_use(self, rows: Rows) -> float:
        """Return the number of steps of the stream until rows are wanted."""
        uses = self._uses.get(rows)
        if uses is None:
            return math.inf
        index = bisect_left(uses, self._position)
        if self._apart and index and uses[index - 1] >= self._position - self._apart - 1:
            return -1  # the slowest may still come for them
        if self._is_unwanted(rows):
            return math.inf
        return uses[index] - self._position if index < len(uses) else uses[0] + len(self._order) - self._position

    def _is_unwanted(self, rows: Rows) -> bool:
        """Say whether doubtful rows will not be asked for, as far as is known."""
        return rows.name in self._doubtful and rows not in self._wanted

    def _room_for(self, size_bytes: int, needed_in: int) -> Array | None:
        """Return a buffer, driving out rows that are wanted later than this; None while there is none."""
        while True:
            rounded = buffer_bytes(size_bytes)
            fitting = next((i for i, buffer in enumerate(self._free) if buffer.nbytes == rounded), None)
            if fitting is not None:
                return self._free.pop(fitting)
            while self._free and self.allocated_bytes + rounded > self.limit_bytes:
                self.allocated_bytes -= self._free.pop().nbytes
            if self.allocated_bytes + rounded <= self.limit_bytes:
                self.allocated_bytes += rounded
                return aligned_empty(rounded)
            idle = self._idle(needed_in)
            victim = max(idle, key=lambda rows: (not self._stays(rows), self._next_use(rows)), default=None)
            if victim is None:
                return None
            self._drop(victim)

    def _idle(self, needed_in: int) -> list[Rows]:
        """Rows that could make room for others, which are needed in `needed_in` steps of the stream."""
        idle = (rows for rows, entry in self._entries.items() if entry.ready and not entry.users)
        # Rows that are only fetched ahead keep no borrower waiting.
        return [r for r in idle if self._next_use(r) > needed_in and (needed_in < 0 or not self._stays(r))]

    def _stays(self, rows: Rows) -> bool:
        return self._entries[rows].array.nbytes <= STAYS_BYTES and rows in self._uses

    def _drop_if_stale(self, rows: Rows) -> None:
        entry = self._entries[rows]
        if entry.stale and entry.ready and not entry.users:
            self._drop(rows)

    def _drop(self, rows: Rows) -> None:
        self._free.append(self._entries.pop(rows).buffer)

    def _nbytes(self, rows: Rows) -> int:
        shape, dtype = self._layout(rows)
        return math.prod(shape) * dtype.itemsize


def buffer_bytes(size_bytes: int) -> int:
    """Size of the buffer for rows [bytes]."""
    if size_bytes <= STAYS_BYTES:
        return size_bytes
    multiple: int = (1 << size_bytes.bit_length() - 1) // ROUNDING
    return -(-size_bytes // multiple) * multiple


class TileBuffers:
    """Buffers for tiles that are read from a file; each thread has its own."""

    def __init__(self) -> None:
        self._local, self._guard = threading.local(), threading.Lock()
        self.allocated_bytes = 0
        """of all threads"""

    def rows_of(self, row_bytes: int) -> int:
        """Return the number of rows of a tile: whole pages where that is possible."""
        rows, in_whole_pages = max(1, TILE_BYTES // max(1, row_bytes)), PAGE_BYTES // math.gcd(PAGE_BYTES, row_bytes)
        return rows // in_whole_pages * in_whole_pages or rows

    def take(self, index: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return the buffer of this thread with a number, as an array; what it held is gone."""
        size_bytes = math.prod(shape) * dtype.itemsize
        buffers: dict[int, Array] = self._local.__dict__.setdefault("buffers", {})
        if index not in buffers or buffers[index].nbytes < size_bytes:
            buffers[index] = aligned_empty(max(size_bytes, TILE_BYTES))
            with self._guard:
                self.allocated_bytes += buffers[index].nbytes
        return buffers[index][:size_bytes].view(dtype).reshape(shape)
