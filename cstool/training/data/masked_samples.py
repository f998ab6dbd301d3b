"""The tokens of a sample of masked text: runs of text, or pairs of runs of which one may follow the other.

A run is `[CLS] tokens [SEP]`. Packed as a stream, runs go on across documents with [SEP] between; packed by documents,
each document begins one. A pair is `[CLS] first [SEP] second [SEP]`: the second follows the first in its document, or,
of half of the pairs, is from a random place of another.

Source: Liu et al., "RoBERTa: A robustly optimized BERT pretraining approach", 2019, section 4.2 (full sentences, and
sentences of one document); Devlin et al., "BERT: Pre-training of deep bidirectional transformers for language
understanding", 2019, section 3.1 (pairs).
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.random_keys import generator
from cstool.training.data.dataset import Array
from cstool.training.data.masked_text import COLUMNS, TOKENS
from cstool.training.data.samples import Packing, SampleFile
from cstool.training.data.token_stream import TokenStream
from cstool.training.data.vocabulary import CLS, SEP, Vocabulary

LEAST_LENGTH = 8
"""tokens of a sample: three are special, and there must be room for text"""
LEAST_PAIR = 2
"""tokens of text of a pair"""


class Span(NamedTuple):
    """Tokens of a document, by their positions in the stream of all."""

    start: int
    stop: int


class Sample(NamedTuple):
    """The spans of text of a sample.

    Args:
        first: of the sample, or of its first text; between two of them is a [SEP]
        second: None where samples are no pairs
        is_random: whether the second is from anywhere
    """

    first: Sequence[Span]
    second: Span | None = None
    is_random: bool = False


class Runs:
    """Samples of one text each, by their number.

    Args:
        document_tokens: (documents,) int64
        room: tokens of a sample, beside special ones
        packing: "stream" or "documents"
        separator: number of places between documents, as a stream
    """

    def __init__(self, document_tokens: Array, *, room: int, packing: Packing, separator: int) -> None:
        ends = np.cumsum(document_tokens)
        is_text = document_tokens > 0
        self._starts, self._stops = (ends - document_tokens)[is_text], ends[is_text]
        self._room, self._is_stream = room, packing == "stream"
        lengths = self._stops - self._starts
        if self._is_stream:
            # A separator follows each document, but for the last.
            self._edges = np.cumsum([0, *(lengths + separator)])
            self.count = -(-max(0, int(self._edges[-1]) - separator) // room)
        else:
            self._edges = np.cumsum([0, *(-(-lengths // room))])
            self.count = int(self._edges[-1])
        self.tokens = int(lengths.sum())
        """of text, in all samples"""

    def sample(self, number: int) -> Sample:
        """Return the spans of a sample."""
        if not self._is_stream:
            document = int(np.searchsorted(self._edges, number, side="right")) - 1
            start = int(self._starts[document]) + (number - int(self._edges[document])) * self._room
            return Sample([Span(start, min(start + self._room, int(self._stops[document])))])
        begin, end = number * self._room, (number + 1) * self._room
        spans = []
        document = int(np.searchsorted(self._edges, begin, side="right")) - 1
        while document < len(self._starts) and int(self._edges[document]) < end:
            origin = int(self._starts[document]) - int(self._edges[document])
            start = max(int(self._starts[document]), begin + origin)
            stop = min(int(self._stops[document]), end + origin)
            if start < stop:
                spans.append(Span(start, stop))
            document += 1
        return Sample(spans)


class Pairs:
    """Samples of two texts each, by their number: 25 bytes of memory for each.

    Args:
        document_tokens: (documents,) int64
        sequence_length: S, special tokens included
        seed: of the lengths, and of the choice of pairs whose texts do not follow each other
        part: of the data set
    """

    def __init__(self, document_tokens: Array, *, sequence_length: int, seed: int, part: str) -> None:
        ends = np.cumsum(document_tokens)
        is_text = document_tokens > 0
        starts, lengths = (ends - document_tokens)[is_text], document_tokens[is_text]
        rng, room = generator(seed, f"pairs/{part}"), sequence_length - 3
        found: list[Array] = []
        for document, (begin, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            rows, at = [], 0
            while length - at >= LEAST_PAIR:
                size = min(room, length - at)
                draws = rng.random(4)
                cut = 1 + int(draws[0] * (size - 1))
                if draws[1] < 0.5:
                    # Where there is no other document, any place of this one will do.
                    other = int(draws[2] * max(1, len(starts) - 1))
                    other += len(starts) > 1 and other >= document
                    offset = int(draws[3] * int(lengths[other]))
                    second = int(starts[other]) + offset
                    rows.append((begin + at, cut, second, min(room - cut, int(lengths[other]) - offset), 1))
                    at += cut
                else:
                    rows.append((begin + at, cut, begin + at + cut, size - cut, 0))
                    at += size
            found.append(np.array(rows, _PAIR))
        self._pairs = np.concatenate([*found, np.empty(0, _PAIR)])
        self.count = len(self._pairs)
        self.tokens = int(
            self._pairs["first_size"].sum(dtype=np.int64) + self._pairs["second_size"].sum(dtype=np.int64)
        )
        """of text, in all samples"""

    def sample(self, number: int) -> Sample:
        """Return the spans of a sample."""
        first, first_size, second, second_size, is_random = self._pairs[number].tolist()
        return Sample([Span(first, first + first_size)], Span(second, second + second_size), bool(is_random))


_PAIR = np.dtype([("first", "i8"), ("first_size", "i4"), ("second", "i8"), ("second_size", "i4"), ("is_random", "u1")])


@dataclass(frozen=True)
class WriteRows:
    """Write files of samples as rows of CSV; a task for any process.

    Args:
        streams: the tokens of each part
        samples: of each part
        vocabulary: the path of its file
        do_lower: whether its tokens are taken in lower case
    """

    streams: Mapping[str, TokenStream]
    samples: Mapping[str, Runs | Pairs]
    vocabulary: Path
    do_lower: bool

    @cached_property
    def _words(self) -> Vocabulary:
        return Vocabulary(self.vocabulary, do_lower=self.do_lower)

    def __call__(self, file: SampleFile) -> None:
        """Write one file, or nothing; raise OSError if it cannot be written."""
        samples = self.samples[file.part]
        content = StringIO(newline="")
        writer = csv.writer(content)
        writer.writerow(COLUMNS if isinstance(samples, Pairs) else [TOKENS])
        for number in range(file.first, file.first + file.count):
            writer.writerow(self._row(self.streams[file.part], samples.sample(number)))
        write_replacing(file.path, content.getvalue().encode())

    def _row(self, stream: TokenStream, sample: Sample) -> Iterator[str]:
        words = self._words.written
        cls, sep = (words[self._words.id_of(token)] for token in (CLS, SEP))
        tokens = [cls]
        for span in sample.first:
            tokens += [*(words[token] for token in stream.read(*span).tolist()), sep]
        first = len(tokens)
        if sample.second is not None:
            tokens += [*(words[token] for token in stream.read(*sample.second).tolist()), sep]
        yield str(tokens)
        if sample.second is not None:
            yield str([0] * first + [1] * (len(tokens) - first))
            yield str(int(sample.is_random))
