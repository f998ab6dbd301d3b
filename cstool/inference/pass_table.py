"""A pass over a few rows, written down as a table that runs without the interpreter.

The interpreter's walk writes it (`training/kernels/recording.py`), so the kernels, their order and all bits are the
same. The tokens, their places and the rows whose logits are wanted stand in arrays that every pass fills anew. Where
members of a team share ops, a crew executes the table.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cstool.inference.team import SharedRecording, Team
from cstool.training.kernels.cached_attention import News
from cstool.training.kernels.driver import Table
from cstool.training.kernels.recording import recorded

Array = np.ndarray[Any, Any]


class PassTable:
    """The table of a pass, for up to so many rows, of any sequences: the rows of others have no token.

    Args:
        ids: (T,) int32, the input of the ops
        wanted: most rows whose logits are wanted
        classes: of the logits
        walk: makes the kernel calls of a pass: for the new tokens, with the wanted rows, (wanted,) int64, and the array
            for their logits
        team: shares ops
        attended: number of keys of the pass that is to come: by it the team shares attention or not

    Raises:
        NotRecordableError: a call cannot be written down
    """

    def __init__(
        self,
        ids: Array,
        wanted: int,
        classes: int,
        walk: Callable[[News, Array, Array], None],
        team: Team,
        attended: int,
    ) -> None:
        rows = len(ids)
        self._ids, self._team, self._wanted = ids, team, np.zeros(wanted, np.int64)
        self._news = News.of(range(rows), [1] * rows, [attended] + [0] * (rows - 1))
        self._logits = np.empty((wanted, classes), np.float32)
        ids[:] = 0
        recording = SharedRecording(team.size)
        with recorded(recording):
            walk(self._news, self._wanted, self._logits)
        self._table = Table(recording)
        self._program = recording.program(self._table)

    def run(
        self,
        ids: Sequence[int] | Array,
        slots: Sequence[int] | Array,
        counts: Sequence[int] | Array | None,
        before: Sequence[int] | Array,
        wanted: Sequence[int] | Array,
    ) -> Array:
        """Run a pass; return logits, (wanted, classes) float32.

        Args:
            ids: the tokens of all sequences, one sequence after the other
            slots, counts, before: see `News`; None for one token of each
            wanted: rows whose logits are asked for

        Raises:
            NativeError: a kernel raised an exception
        """
        sequences, news = len(slots), self._news
        self._ids[: len(ids)] = ids
        news.slots[:sequences] = slots
        news.before[:sequences] = before
        news.counts[:sequences] = 1 if counts is None else counts
        news.counts[sequences:] = 0
        np.cumsum(news.counts[:-1], out=news.starts[1:])
        self._wanted[: len(wanted)] = wanted
        if self._program is None:
            self._table.run()
        elif failures := self._team.crew.run(self._program):
            raise failures[0].error
        return self._logits[: len(wanted)].copy()
