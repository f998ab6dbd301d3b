"""Samples on their way to rows, in a file without a name."""

from typing import IO

import numpy as np

from cstool.training.data.conversation_tokens import Sample


class SampleSpool:
    """Samples in a file, in the order in which they are added; read once all are."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.lengths: list[int] = []
        """tokens of each sample"""
        self._content = np.empty(0, np.int32)
        self._ends = np.empty(0, np.int64)

    def add(self, sample: Sample) -> None:
        """Add a sample; tokens that are not learned are written with all their bits turned."""
        self.lengths.append(len(sample.tokens))
        self._file.write(np.where(sample.learned, sample.tokens, ~sample.tokens).astype(np.int32).tobytes())

    def finish(self) -> None:
        """Make the samples readable."""
        self._file.flush()
        if self.lengths:
            self._content = np.memmap(self._file, np.int32, "r")
        self._ends = np.cumsum(self.lengths, dtype=np.int64)

    def read(self, number: int) -> Sample:
        """Return a sample."""
        end = int(self._ends[number])
        found = np.array(self._content[end - self.lengths[number] : end])
        return Sample(np.where(found < 0, ~found, found), found >= 0)
