"""The store in main memory keeps the contract of all stores, and hands out views."""

import threading

import numpy as np
import pytest

from cstool.store import RamStore
from tests.contract.store_contract import StoreContract, StoreMaker


class TestRamStore(StoreContract):
    @pytest.fixture
    def make_store(self) -> StoreMaker:
        return RamStore


@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 11)])
def test_an_array_begins_at_64_bytes(shape):
    store = RamStore()
    store.create("a", shape)
    assert store.borrow("a", 0, 1).ctypes.data % 64 == 0


def test_borrowing_copies_nothing():
    store = RamStore()
    store.create("a", (4, 2))
    assert np.shares_memory(store.borrow("a", 0, 3), store.borrow("a", 2, 4))


def test_borrowed_rows_outlive_the_store():
    store = RamStore()
    store.create("a", (4,))
    rows = store.borrow("a", 0, 4)
    store.close()
    assert rows.tolist() == [0, 0, 0, 0]


def test_threads_borrow_and_give_back_at_the_same_time():
    store = RamStore()
    store.create("a", (4,))

    def add_one_often(row: int) -> None:
        for _ in range(200):
            rows = store.borrow("a", row, row + 1)
            rows += 1
            store.give_back("a", row, row + 1, rows, changed=True)

    threads = [threading.Thread(target=add_one_often, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.borrow("a", 0, 4).tolist() == [200, 200, 200, 200]
