"""Input workers: read the batches of a data set ahead of the appliance, and measure its waits for them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cstool.training.data import MASKS, Dataset, Sampler
from cstool.training.machine.recorder import OFF, Recorder

Array = np.ndarray[Any, Any]

BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Batch:
    """A global batch."""

    number: int
    """from 0, over all epochs"""
    arrays: Mapping[str, Array]
    """by name, (B, ...), or of a share its samples alone; places beyond `samples` repeat the last one, masks 0"""
    samples: int
    """real samples"""
    tokens: int
    """unmasked tokens, which the loss may be divided by"""
    size: int
    """places, B"""
    stream: int = 0
    """the number of the stream that it belongs to, which other ranks read, too"""


@dataclass(frozen=True)
class Share:
    """The part of each batch that is read here, where others read the rest.

    Args:
        stream: number of the stream of batches
        samples: their places in the batch, in order
        count: count(number, tokens) gives the tokens of a whole batch, from the tokens of this share
    """

    stream: int
    samples: Sequence[int]
    count: Callable[[int, int], int]


class InputWorker:
    """Reads the batches `first`, `first` + 1, ... in a thread of its own.

    Use as a context manager. Errors of the data set are raised by `next`.

    Args:
        count: number of batches to read; None for no end
        recorder: records the reading of batches, and the waits for them
        share: the part of each batch to read; None for all
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: Sampler,
        first: int,
        count: int | None,
        recorder: Recorder = OFF,
        share: Share | None = None,
    ) -> None:
        self.dataset = dataset
        self.sampler = sampler
        self.waited_s = 0.0
        """time that the appliance waited for input [s]"""
        self._recorder = recorder
        self._share = share
        self._range = (first, None if count is None else first + count)
        self._ready: queue.Queue[Batch | BaseException] = queue.Queue(BATCHES_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="input-worker", daemon=True)

    def __enter__(self) -> InputWorker:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._thread.join()

    def next(self) -> Batch:
        """The next batch, once it is read."""
        began = time.perf_counter()
        item = self._ready.get()
        self.waited_s += time.perf_counter() - began
        self._recorder.waited_for_input(began)
        if isinstance(item, BaseException):
            raise item
        return item

    def _work(self) -> None:
        number, end = self._range
        while not self._stopped.is_set() and (end is None or number < end):
            try:
                with self._recorder.batch(number):
                    item: Batch | BaseException = self._read(number)
            except BaseException as error:
                item = error
            while not self._stopped.is_set():
                try:
                    self._ready.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if isinstance(item, BaseException):
                return
            number += 1

    def _read(self, number: int) -> Batch:
        indices = self.sampler.indices(number)
        samples, size = len(indices), self.sampler.batch_size
        padded = np.concatenate([indices, np.repeat(indices[-1:], size - samples)])
        places = np.arange(size) if self._share is None else np.asarray(self._share.samples, np.int64)
        fields = self.dataset.fields.items()
        arrays = {name: np.empty((len(places), *field.shape), field.dtype) for name, field in fields}
        if len(places):
            self.dataset.read(padded[places], arrays, self.sampler.epoch(number))
        for name in MASKS:
            if name in arrays:
                arrays[name][places >= samples] = 0
        tokens = int(np.count_nonzero(arrays["mask"]))
        if self._share is None:
            return Batch(number, arrays, samples, tokens, size)
        return Batch(number, arrays, samples, self._share.count(number, tokens), size, self._share.stream)
