"""Samples of a translation: a text for the encoder, and one that the decoder tells.

A folder has files of text in pairs, listed in its `meta.dat`, whose lines belong together; their tokens have spaces
between. Pairs that are too long, and pairs with an empty text, are left out.

Source: Cerebras Model Zoo 2.10.0, data/nlp/transformer/TransformerDynamicDataProcessor.py.
"""

from collections.abc import Mapping

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import TranslationsParams
from cstool.training.data.dataset import ANY_MODEL, Array, ModelSize
from cstool.training.data.row_dataset import RowDataset
from cstool.training.data.row_files import Row, line_tokens, text_rows, token_counts
from cstool.training.data.sequence_pairs import PairFiller, pair_fields


class TranslationsDataset(RowDataset):
    """Pairs of texts."""

    def __init__(self, loader: TranslationsParams, model: ModelSize = ANY_MODEL) -> None:
        self._filler = PairFiller(loader, model.vocab_size)
        sources, self._targets = text_rows(loader.data_dir, columns=2, tried=loader.tried)
        lengths = loader.src_max_sequence_length, loader.tgt_max_sequence_length
        super().__init__(sources, pair_fields(*lengths), loader.data_dir)
        # One token less than there is room for, on both sides: the decoder's begin or end takes a place.
        fits = np.ones(sources.count, bool)
        for rows, length in zip((sources, self._targets), lengths, strict=True):
            counts = token_counts(rows)
            fits &= (counts > 0) & (counts < length)
        self._taken = np.flatnonzero(fits)
        self.sample_count = len(self._taken)
        if self.sample_count == 0:
            raise DataError(
                f"{sources.files[0].path}: must have a pair of fewer than {' and '.join(f'{n:,}' for n in lengths)} "
                f"tokens, got none of {sources.count:,}",
                "give a larger src_max_sequence_length and tgt_max_sequence_length",
            )

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        super().read(self._taken[indices], out, epoch)

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill a sample of a pair."""
        lines, ids = (row, self._targets.read(row.number)), self._filler.vocabulary.ids
        source, target = (np.array(ids(line_tokens(line))) for line in lines)
        self._filler.fill(source, target, sample)

    def close(self) -> None:
        """Close all files. May be called twice."""
        super().close()
        self._targets.close()
