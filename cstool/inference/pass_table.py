"""A pass with one new token of each of its sequences, written down as a table that runs without the interpreter.

The interpreter's walk writes it (`training/kernels/recording.py`), so the kernels, their order and all bits are the
same. The tokens and their places stand in arrays that every pass fills anew.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.driver import Table
from cstool.training.kernels.recording import Recording, recorded

Array = np.ndarray[Any, Any]


class PassTable:
    """The table of a pass, for up to so many sequences: the rows of others have no token.

    Args:
        ids: (T,) int32, the input of the ops
        classes: of the logits
        walk: makes the kernel calls of a pass: for the new tokens, with the array for their logits

    Raises:
        NotRecordableError: a call cannot be written down
    """

    def __init__(self, ids: Array, classes: int, walk: Callable[[News, Array], None]) -> None:
        rows = len(ids)
        self._ids, self._news = ids, News.of(range(rows), [1] * rows)
        self._logits = np.empty((rows, classes), np.float32)
        ids[:] = 0
        with recorded(Recording()) as recording:
            walk(self._news, self._logits)
        self._table = Table(recording)

    def run(self, ids: Sequence[int], slots: Sequence[int], before: Sequence[int]) -> Array:
        """Run a pass; return the logits of its tokens, (sequences, classes) float32.

        Args:
            ids: the token of each sequence
            slots, before: see `News`

        Raises:
            NativeError: a kernel raised an exception
        """
        count, news = len(ids), self._news
        self._ids[:count] = ids
        news.slots[:count] = slots
        news.before[:count] = before
        news.counts[:count] = 1
        news.counts[count:] = 0
        self._table.run()
        return self._logits[:count].copy()
