"""Samples for T5: texts of which spans are taken out as they are read, anew in every epoch.

A folder has files of text, listed in its `meta.dat`. A line is a text, its tokens with spaces between. It is cut into
samples; `documents` lines may be put together first.

Source: Cerebras Model Zoo 2.10.0, data/nlp/t5/T5DynamicDataProcessor.py.
"""

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import TextSpansParams
from cstool.training.data.dataset import ANY_MODEL, Array, ModelSize
from cstool.training.data.row_dataset import TableDataset
from cstool.training.data.row_files import line_tokens, text_rows, token_counts
from cstool.training.data.sequence_pairs import PairFiller, pair_fields
from cstool.training.data.span_corruption import SpanCorruption, span_lengths

_BLOCK_TOKENS = 2**17
_TEXTS_KEPT = 16
"""that samples were cut from last"""


class TextSpansDataset(TableDataset):
    """Texts with spans taken out."""

    def __init__(self, loader: TextSpansParams, model: ModelSize = ANY_MODEL) -> None:
        folder, length = loader.data_dir[0], loader.src_max_sequence_length
        lengths = span_lengths(length)
        if lengths.targets > loader.tgt_max_sequence_length:
            raise DataError(
                f"{folder}: tgt_max_sequence_length must be at least {lengths.targets:,}, the targets of "
                f"src_max_sequence_length ({length:,}), got {loader.tgt_max_sequence_length:,}",
                f"{lengths.raw:,} tokens of text, of which {lengths.spans:,} spans are taken out, make such a sample",
            )
        if lengths.spans > loader.extra_ids:
            raise DataError(
                f"{folder}: extra_ids must be at least {lengths.spans:,}, the spans taken out of a sample of "
                f"src_max_sequence_length ({length:,}), got {loader.extra_ids:,}",
                "each has a token of its own, at the end of the vocabulary; the model needs as many",
            )
        self._filler = PairFiller(loader, model.vocab_size, loader.extra_ids)
        [rows] = text_rows(loader.data_dir, tried=loader.tried)
        super().__init__(rows, pair_fields(length, loader.tgt_max_sequence_length), loader.data_dir)
        self._raw, self._documents = lengths.raw, loader.documents
        counts = token_counts(rows)
        starts = np.arange(0, len(counts), self._documents)
        self._tokens = np.add.reduceat(counts, starts)
        self._edges = np.cumsum([0, *(-(-self._tokens // self._raw))])
        self.sample_count = int(self._edges[-1])
        if self.sample_count == 0:
            raise DataError(f"{rows.files[0].path}: must have at least one token, got none")
        self._corruption = SpanCorruption(self._filler.vocab_size, loader.shuffle_seed)
        self._text = lru_cache(_TEXTS_KEPT)(self._read_text)

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields, with the spans of an epoch; see `Dataset.read`."""
        step = max(1, _BLOCK_TOKENS // self._raw)
        for start in range(0, len(indices), step):
            numbers = np.asarray(indices[start : start + step], np.int64)
            texts = [self._sample(number) for number in numbers.tolist()]
            lengths = np.array([len(text) for text in texts])
            masks = self._corruption.noise_masks(lengths, numbers, epoch)
            for place, (text, mask) in enumerate(zip(texts, masks, strict=True), start):
                source, target = self._corruption.corrupted(text, mask[: len(text)])
                self._filler.fill(source, target, {name: array[place] for name, array in out.items()})

    def _sample(self, number: int) -> Array:
        """Return the tokens of a sample before spans are taken out."""
        if not 0 <= number < self.sample_count:
            raise IndexError(f"samples are numbered from 0 to {self.sample_count - 1}, got {number}")
        text = int(np.searchsorted(self._edges, number, side="right")) - 1
        start = (number - int(self._edges[text])) * self._raw
        return self._text(text)[start : start + self._raw]

    def _read_text(self, text: int) -> Array:
        rows = range(text * self._documents, min((text + 1) * self._documents, self.rows.count))
        ids = self._filler.vocabulary.ids
        found = np.array([token for row in rows for token in ids(line_tokens(self.rows.read(row)))])
        if len(found) != self._tokens[text]:
            raise DataError(
                f"{self.rows.read(rows[0]).where}: must have {self._tokens[text]:,} tokens, got {len(found):,}",
                "the file changed after it was opened",
            )
        return found
