"""Tables that kernels read and never write: made once, shared by all lanes."""

import threading
from collections.abc import Callable, Hashable

import numpy as np

BLOCK_ROWS = 4096
"""rows of a table that are made at a time, so that intermediate arrays stay small"""

_MOST = 16
_lock = threading.Lock()
_tables: dict[Hashable, tuple[np.ndarray, ...]] = {}


def shared_tables(key: Hashable, make: Callable[[], tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Return the tables of a key, made at the first request; the oldest of too many are forgotten.

    Args:
        key: of everything that the tables depend on
        make: makes them
    """
    with _lock:
        if (found := _tables.get(key)) is None:
            if len(_tables) >= _MOST:
                del _tables[next(iter(_tables))]
            found = _tables[key] = make()
        return found


def table_bytes() -> int:
    """Size of all tables [bytes]."""
    with _lock:
        return sum(table.nbytes for tables in _tables.values() for table in tables)
