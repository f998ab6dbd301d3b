"""Input workers read ahead, in order, and tell what went wrong."""

import itertools
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pytest

from cstool.foundation.errors import DataError
from cstool.training.data import Field, Sampler
from cstool.training.machine.inputs import BATCHES_AHEAD, InputWorker

Array = np.ndarray


class Numbers:
    """A data set whose sample i is the number i; the mask of sample 0 is 0, and a mask of samples is never."""

    fields: Mapping[str, Field] = {
        "x": Field((2,), "float32"),
        "mask": Field((), "float32"),
        "sample_mask": Field((1,), "float32"),
    }

    def __init__(self, sample_count: int, *, fails_at: int | None = None) -> None:
        self.sample_count = sample_count
        self.fails_at = fails_at
        self.epochs: list[int] = []

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0) -> None:
        if self.fails_at is not None and self.fails_at in indices:
            raise DataError(f"sample {self.fails_at}: must be whole, got half of it")
        self.epochs.append(epoch)
        out["x"][:] = indices[:, None]
        out["mask"][:] = indices != 0
        out["sample_mask"][:] = 1


def worker(dataset: Numbers, *, batch_size: int = 4, first: int = 0, count: int | None = None) -> InputWorker:
    sampler = Sampler(dataset.sample_count, batch_size, shuffle=False, seed=1, drop_last=False)
    return InputWorker(dataset, sampler, first, count)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "input-worker"]


def test_batches_come_in_order_over_all_epochs():
    with worker(Numbers(8), first=1) as found:
        batches = [found.next() for _ in range(4)]
    assert [batch.number for batch in batches] == [1, 2, 3, 4]
    assert [batch.arrays["x"][:, 0].tolist() for batch in batches] == [[4, 5, 6, 7], [0, 1, 2, 3]] * 2


def test_a_part_of_a_batch_is_filled_with_its_last_sample_and_every_mask_is_zero_there():
    with worker(Numbers(6), first=1) as found:
        batch = found.next()
    assert batch.arrays["x"][:, 0].tolist() == [4, 5, 5, 5]
    assert batch.arrays["mask"].tolist() == [1, 1, 0, 0]
    assert batch.arrays["sample_mask"].tolist() == [[1], [1], [0], [0]]
    assert (batch.samples, batch.tokens) == (2, 2)


@pytest.mark.parametrize("first", [0, 3, 4])
def test_as_many_batches_are_read_as_were_asked_for_and_a_data_set_is_told_how_often_it_was_gone_through(first):
    dataset = Numbers(9)  # 3 batches, the last one not full
    with worker(dataset, first=first, count=5) as found:
        for _ in range(5):
            found.next()
    assert dataset.epochs == [number // 3 for number in range(first, first + 5)]


def test_tokens_are_those_that_the_mask_counts_and_arrays_have_the_types_of_the_data_set():
    with worker(Numbers(8)) as found:
        batch = found.next()
    assert (batch.samples, batch.tokens) == (4, 3)
    assert {name: (array.shape, array.dtype.name) for name, array in batch.arrays.items()} == {
        "x": ((4, 2), "float32"),
        "mask": ((4,), "float32"),
        "sample_mask": ((4, 1), "float32"),
    }


def test_an_error_of_the_data_set_is_raised_by_next_in_its_turn_and_ends_the_thread():
    with worker(Numbers(12, fails_at=5)) as found:
        assert found.next().number == 0
        with pytest.raises(DataError) as caught:
            found.next()
    assert str(caught.value) == "sample 5: must be whole, got half of it"
    assert threads() == []


def test_it_reads_only_a_few_batches_ahead():
    dataset = Numbers(100)
    with worker(dataset) as found:
        found.next()
        time.sleep(0.1)
        # one handed out, some ready, one more in the hand of the thread
        assert len(dataset.epochs) <= 1 + BATCHES_AHEAD + 1


def test_the_time_spent_waiting_is_counted(monkeypatch):
    """By a clock that goes on by a second whenever somebody looks at it: before a wait, and after it."""
    seconds = itertools.count()
    monkeypatch.setattr(
        "cstool.training.machine.inputs.time", SimpleNamespace(perf_counter=lambda: float(next(seconds)))
    )
    with worker(Numbers(8)) as found:
        for _ in range(3):
            found.next()
    assert found.waited_s == 3.0


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_its_thread_ends_with_the_context_however_far_it_came(batches):
    with worker(Numbers(100)) as found:
        for _ in range(batches):
            found.next()
        during = threads()
    assert (during, threads()) == (["input-worker"], [])
