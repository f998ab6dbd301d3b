"""The store in a file keeps the contract of all stores; what was committed is there again, whatever came after."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.store import FileStore
from tests.contract.store_contract import StoreContract, StoreMaker

Array = np.ndarray[Any, Any]
ROOM = 2**20


class TestFileStore(StoreContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> StoreMaker:
        numbers = itertools.count()
        return lambda: FileStore(tmp_path / f"{next(numbers)}.h5", ROOM)


class TestFileStoreWithOneSlot(StoreContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> StoreMaker:
        numbers = itertools.count()
        return lambda: FileStore(tmp_path / f"{next(numbers)}.h5", ROOM, slots=1)


def whole(store: FileStore, name: str) -> Array:
    rows = store.borrow(name, 0, store.shape(name)[0])
    copy = rows.copy()
    store.give_back(name, 0, len(rows), rows, changed=False)
    return copy


def fill(store: FileStore, name: str, start: int, stop: int, value: float) -> None:
    rows = store.borrow(name, start, stop)
    rows[:] = value
    store.give_back(name, start, stop, rows, changed=True)


def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "memoryx.h5", ROOM)
    store.create("a", (4, 3))
    fill(store, "a", 0, 4, 1)
    fill(store, "a", 1, 3, 2)
    store.commit({"global_step": 7}, {})
    committed = whole(store, "a")
    fill(store, "a", 0, 4, 9)
    store.close()
    store = FileStore(tmp_path / "memoryx.h5", ROOM, adopt=True)
    store.create("a", (4, 3))
    assert store.record is not None
    assert store.record.step == 7
    store.verify()
    assert whole(store, "a").tolist() == committed.tolist()
    store.close()
