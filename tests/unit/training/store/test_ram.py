"""The store in main memory keeps the contract of all stores, and hands out views."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cstool.training.store import RamStore
from tests.contract.store_contract import StoreContract, StoreMaker


class TestRamStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> StoreMaker:
        return RamStore


def test_borrowing_copies_nothing_and_rows_begin_at_64_bytes_and_outlive_the_store():
    store = RamStore()
    for name, shape in {"a": (4, 2), "b": (1,), "c": (3, 5), "d": (7, 11)}.items():
        store.create(name, shape)
        assert store.borrow(name, 0, 1).ctypes.data % 64 == 0
    rows = store.borrow("a", 0, 3)
    assert np.shares_memory(rows, store.borrow("a", 2, 4))
    store.close()
    assert rows.tolist() == [[0, 0]] * 3


def test_threads_borrow_and_give_back_at_the_same_time():
    store = RamStore()
    store.create("a", (4,))

    def add_one_often(row: int) -> None:
        for _ in range(200):
            rows = store.borrow("a", row, row + 1)
            rows += 1
            store.give_back("a", row, row + 1, rows, changed=True)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add_one_often, range(4)))
    assert store.borrow("a", 0, 4).tolist() == [200, 200, 200, 200]
