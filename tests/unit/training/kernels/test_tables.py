"""Tables that all lanes share."""

import threading
import time

import numpy as np
import pytest

from cstool.training.kernels import tables
from cstool.training.kernels.embedding import sinusoids
from cstool.training.kernels.rotary import rotary_table
from cstool.training.kernels.tables import shared_tables, table_bytes


@pytest.fixture(autouse=True)
def _no_tables(monkeypatch):
    monkeypatch.setattr(tables, "_tables", {})


def test_lanes_that_ask_together_get_one_table():
    made, found = [], []

    def make() -> tuple[np.ndarray]:
        made.append(1)
        time.sleep(0.05)
        return (np.zeros(3),)

    threads = [threading.Thread(target=lambda: found.append(shared_tables("key", make)[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len({id(table) for table in found})) == (1, 1)


def test_the_oldest_of_too_many_are_forgotten():
    for number in range(20):
        shared_tables(number, lambda: (np.zeros(10, np.float32), np.zeros(5, np.float32)))
    assert table_bytes() == 16 * 60
    assert list(tables._tables) == list(range(4, 20))


def test_what_tables_take_is_told():
    rotary_table(7, (1.0, 0.5), 1.0, np.dtype(np.float32))
    sinusoids(9, 6, np.dtype(np.float32))
    assert table_bytes() == 2 * 7 * 2 * 4 + 9 * 6 * 4


@pytest.mark.parametrize("rows", [1, 4, 100])
def test_a_table_is_the_same_in_blocks_of_any_size(rows, monkeypatch):
    expected = sinusoids(10, 6, np.dtype(np.float64)), *rotary_table(10, (1.0, 0.1), 2.0, np.dtype(np.float64))
    monkeypatch.setattr(tables, "_tables", {})
    for module in ("embedding", "rotary"):
        monkeypatch.setattr(f"cstool.training.kernels.{module}.BLOCK_ROWS", rows)
    found = sinusoids(10, 6, np.dtype(np.float64)), *rotary_table(10, (1.0, 0.1), 2.0, np.dtype(np.float64))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
