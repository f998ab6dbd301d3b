"""Samples of a translation: a text for the encoder, and one that the decoder tells.

A folder has files of text in pairs, listed in its `meta.dat`, whose lines belong together; their tokens have spaces
between. Pairs that are too long, and pairs with an empty text, are left out.

Source: Cerebras Model Zoo 2.10.0, data/nlp/transformer/TransformerDynamicDataProcessor.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array
from cstool.training.data.row_dataset import RowDataset
from cstool.training.data.row_files import Row, RowFiles, text_rows
from cstool.training.data.sequence_pairs import PairFiller, PairRequest, pair_fields
from cstool.training.data.token_lines import line_tokens, token_counts
from cstool.training.data.vocabulary import PAIRS_HINT, Vocabulary


class TranslationsDataset(RowDataset):
    """Pairs of texts. Built by `open_translations`."""

    def __init__(
        self,
        sources: RowFiles,
        targets: RowFiles,
        folders: Sequence[Path],
        request: PairRequest,
        filler: PairFiller,
        vocabulary: Vocabulary,
    ) -> None:
        super().__init__(sources, pair_fields(request.sequence_length, request.target_length), folders)
        self._targets, self._filler, self._vocabulary = targets, filler, vocabulary
        source_counts, target_counts = token_counts(sources), token_counts(targets)
        # One token less than there is room for, on both sides: the decoder's begin or end takes a place.
        fits = (source_counts > 0) & (source_counts < request.sequence_length)
        fits &= (target_counts > 0) & (target_counts < request.target_length)
        self._taken = np.flatnonzero(fits)
        self.sample_count = len(self._taken)

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        super().read(self._taken[indices], out, epoch)

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill a sample of a pair."""
        source, target = (
            np.array(self._vocabulary.ids(line_tokens(line))) for line in (row, self._targets.read(row.number))
        )
        self._filler.fill(source, target, sample)

    def close(self) -> None:
        """Close all files. May be called twice."""
        super().close()
        self._targets.close()


def open_translations(
    folders: Sequence[Path],
    request: PairRequest,
    vocabulary: Path,
    *,
    vocab_size: int | None = None,
    tried: str = "",
) -> TranslationsDataset:
    """Open pairs of texts, and check their files.

    Args:
        folders: each with a `meta.dat` and the files that it lists, two on a line
        request: settings by which pairs become samples
        vocabulary: the path of its file, of both texts
        vocab_size: number of tokens of the model; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    words = Vocabulary(vocabulary, do_lower=request.do_lower, unknown=request.unknown, hint=PAIRS_HINT)
    filler = PairFiller(request, words, vocab_size)
    sources, targets = text_rows(folders, columns=2, tried=tried)
    dataset = TranslationsDataset(sources, targets, folders, request, filler, words)
    if dataset.sample_count == 0:
        raise DataError(
            f"{sources.files[0].path}: must have a pair of fewer than {request.sequence_length:,} and "
            f"{request.target_length:,} tokens, got none of {sources.count:,}",
            "give a larger src_max_sequence_length and tgt_max_sequence_length",
        )
    return dataset
