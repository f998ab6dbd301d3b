"""The tokens of a sample, the order of samples, and their random numbers: functions of lengths and a seed alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cstool.foundation.random_keys import key_of, philox4x32
from cstool.training.data.dataset import Array
from cstool.training.data.hdf5_text import INPUT_IDS, LABELS, MASK, write_hdf5_text
from cstool.training.data.token_stream import TokenStream

Packing = Literal["stream", "documents"]

BLOCK_TOKENS = 2**20
"""tokens of the samples in memory at a time"""

_ROUNDS = 8


class Samples:
    """The samples of a part, by their number in the text.

    A sample is a run of tokens: its inputs are all but the last, its labels all but the first. Packed as a stream,
    samples go on from each other across documents; packed by documents, each document starts a sample.

    Args:
        document_tokens: (documents,) int64
        has_ends: whether each document ends with a token of its own; as a stream, the last document has none
        sequence_length: S
        packing: "stream" or "documents"
    """

    def __init__(self, document_tokens: Array, *, has_ends: bool, sequence_length: int, packing: Packing) -> None:
        self.sequence_length = sequence_length
        if packing == "stream":
            total = int(document_tokens.sum()) - (has_ends and len(document_tokens) > 0)
            lengths, self._begins = np.array([total], np.int64), np.zeros(1, np.int64)
        else:
            lengths = document_tokens
            self._begins = np.cumsum(document_tokens) - document_tokens
        self._labels = np.maximum(lengths - 1, 0)
        self._edges = np.cumsum([0, *(-(-self._labels // sequence_length))])
        self.count = int(self._edges[-1])
        self.tokens = int(self._labels.sum())
        """labels of all samples"""

    def ranges(self, numbers: Array) -> tuple[Array, Array]:
        """Positions of samples (n,) in the stream, and the number of labels of each: (n,) int64 twice."""
        run = np.searchsorted(self._edges, numbers, side="right") - 1
        offset = (numbers - self._edges[run]) * self.sequence_length
        return self._begins[run] + offset, np.minimum(self._labels[run] - offset, self.sequence_length)


def shuffled(numbers: Array, count: int, seed: int) -> Array:
    """Apply a random permutation of 0 to count - 1 to some numbers, without making the whole of it.

    A Feistel network permutes the next power of 4; numbers that fall outside are permuted again until they are inside.

    Args:
        numbers: (n,) int64 in [0, count)
        count: size of the permutation, below 2**62
        seed: of the permutation

    Returns:
        (n,) int64

    Source: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002, sections 3 and 5.
    """
    key = key_of(seed, "shuffled samples")
    half_bits = max(1, -(-(count - 1).bit_length() // 2))
    mask = np.uint64(2**half_bits - 1)
    numbers = numbers.astype(np.uint64)
    outside = np.ones(len(numbers), bool)
    while outside.any():
        left, right = numbers[outside] >> np.uint64(half_bits), numbers[outside] & mask
        for number in range(_ROUNDS):
            counter = np.zeros((len(right), 4), np.uint32)
            counter[:, 0], counter[:, 1] = right, number
            left, right = right, left ^ (philox4x32(counter, key)[:, 0] & mask)
        numbers[outside] = left << np.uint64(half_bits) | right
        outside = numbers >= count
    return numbers.astype(np.int64)


def sample_draws(seed: int, purpose: str, samples: Array, length: int, epoch: int) -> Array:
    """Return (n, length, 4) uint32: four numbers for each place of some samples, the same in any order of reading.

    Args:
        seed: of the data set
        purpose: a stable name of the draws
        samples: (n,) int64, numbers of the samples
        length: places of a sample
        epoch: number of earlier draws for the same samples
    """
    counter = np.empty((len(samples), length, 4), np.uint32)
    counter[..., 0], counter[..., 1] = (samples & 0xFFFFFFFF)[:, None], (samples >> 32)[:, None]
    counter[..., 2], counter[..., 3] = epoch & 0xFFFFFFFF, np.arange(length)
    return philox4x32(counter.reshape(-1, 4), key_of(seed, purpose)).reshape(counter.shape)


@dataclass(frozen=True)
class SampleFile:
    """A file of a part: samples `first` to `first` + `count`, in the order in which they are written."""

    path: Path
    part: str
    first: int
    count: int


@dataclass(frozen=True)
class WriteSamples:
    """Write files of samples; a task for any process.

    Args:
        streams: the tokens of each part
        samples: of each part
        shuffle_seed: of the order of the samples of a part; None for the order of the text
    """

    streams: dict[str, TokenStream]
    samples: dict[str, Samples]
    shuffle_seed: int | None

    def __call__(self, file: SampleFile) -> None:
        """Write one file, or nothing; raise DataError if the text changed, OSError if it cannot be written."""
        write_hdf5_text(file.path, self._blocks(file), file.count, self.samples[file.part].sequence_length)

    def _blocks(self, file: SampleFile) -> Iterator[Array]:
        samples, stream = self.samples[file.part], self.streams[file.part]
        step = max(1, BLOCK_TOKENS // samples.sequence_length)
        for start in range(file.first, file.first + file.count, step):
            numbers = np.arange(start, min(start + step, file.first + file.count))
            if self.shuffle_seed is not None:
                numbers = shuffled(numbers, samples.count, self.shuffle_seed)
            yield _read(stream, *samples.ranges(numbers), samples.sequence_length)


def _read(stream: TokenStream, starts: Array, labels: Array, sequence_length: int) -> Array:
    """Return samples (n, 3, S) int32 of tokens that begin at `starts`; places beyond their labels are 0."""
    window = np.zeros((len(starts), sequence_length + 1), np.int32)
    ends = starts + labels + 1
    if int(ends.max() - starts.min()) <= 2 * window.size:  # neighbours are read at once
        origin = int(starts.min())
        tokens = stream.read(origin, int(ends.max()))
        places = (starts - origin)[:, None] + np.arange(sequence_length + 1)
        window[...] = tokens[np.minimum(places, len(tokens) - 1)]
    else:
        for row, start, end in zip(window, starts.tolist(), ends.tolist(), strict=True):
            row[: end - start] = stream.read(start, end)
    counts = np.arange(sequence_length) < labels[:, None]
    made = np.empty((len(starts), 3, sequence_length), np.int32)
    made[:, INPUT_IDS] = window[:, :-1] * counts
    made[:, MASK] = counts
    made[:, LABELS] = window[:, 1:] * counts
    return made
