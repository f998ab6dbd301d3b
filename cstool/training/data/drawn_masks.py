"""Samples of a masked language model whose masks are drawn already, with labels for positions or for all tokens.

Rows with positions have a label for each position. Other rows have a label for each token, negative where it does not
count; at most M labels of a sample count.

Source: Cerebras Model Zoo 2.10.0, data/nlp/bert/BertCSVDataProcessor.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import usual_predictions
from cstool.training.data.dataset import Array
from cstool.training.data.masked_text import mlm_fields
from cstool.training.data.row_dataset import RowDataset, integer, integers, of_length
from cstool.training.data.row_files import Row, RowFiles, csv_rows
from cstool.training.data.vocabulary import VOCAB_HINT

INPUT_IDS, ATTENTION, LABELS = NEEDED = ("input_ids", "attention_mask", "labels")
POSITIONS, WEIGHTS = "masked_lm_positions", "masked_lm_weights"
SEGMENTS, NEXT = "token_type_ids", "next_sentence_label"
_PAIRS_HINT = "disable_nsp: true takes texts that do not come in pairs"
_AS_FIRST = "as in the first row"


def gathered(where: str, labels: Array, predictions: int, out: Mapping[str, Array]) -> None:
    """Fill positions, labels and mask of a sample from labels (S,) that are negative where they do not count.

    Raises:
        DataError: more than M count.
    """
    places = np.flatnonzero(labels >= 0)
    if len(places) > predictions:
        raise DataError(
            f"{where}: at most {predictions:,} labels must count, got {len(places):,}",
            f"max_predictions_per_seq: {len(places)} in the dataloader makes room for them",
        )
    for name, values in ((POSITIONS, places), ("labels", labels[places]), ("mask", 1)):
        out[name][...] = 0
        out[name][: len(places)] = values


class DrawnMasksDataset(RowDataset):
    """Rows with lists of numbers. Built by `open_drawn_masks`."""

    def __init__(
        self,
        rows: RowFiles,
        folders: Sequence[Path],
        *,
        sequence_length: int,
        predictions: int,
        has_pairs: bool,
        vocab_size: int | None,
    ) -> None:
        super().__init__(rows, mlm_fields(sequence_length, predictions, has_pairs=has_pairs), folders)
        self._length, self._predictions = sequence_length, predictions
        self._limit = 2**31 if vocab_size is None else vocab_size

    def fill(self, row: Row, sample: Mapping[str, Array]) -> None:
        """Fill all fields."""
        length, like = self._length, "one for each token"
        ids = integers(row, INPUT_IDS, below=self._limit, hint=VOCAB_HINT)
        sample[INPUT_IDS][...] = of_length(row, INPUT_IDS, ids, length, _AS_FIRST)
        sample[ATTENTION][...] = of_length(row, ATTENTION, integers(row, ATTENTION, below=2), length, like)
        labels = integers(row, LABELS, least=None, below=self._limit, hint=VOCAB_HINT)
        if POSITIONS in row.values:
            self._fill_gathered(row, labels, sample)
        else:
            values = np.array(of_length(row, LABELS, labels, length, like), np.int64)
            gathered(row.where, values, self._predictions, sample)
        if NEXT in sample:
            sample[SEGMENTS][...] = of_length(row, SEGMENTS, integers(row, SEGMENTS, below=2), length, like)
            sample[NEXT][0] = integer(row, NEXT, below=2)
            sample["sample_mask"][0] = 1

    def _fill_gathered(self, row: Row, labels: Sequence[int], sample: Mapping[str, Array]) -> None:
        positions = integers(row, POSITIONS, below=self._length)
        weights = integers(row, WEIGHTS, below=2)
        of_length(row, LABELS, labels, self._predictions, _AS_FIRST)
        for name, values in ((POSITIONS, positions), (WEIGHTS, weights)):
            of_length(row, name, values, self._predictions, "one for each label")
        counts = np.array(weights) * (np.array(labels) >= 0)
        for name, found in ((POSITIONS, positions), ("labels", labels), ("mask", 1)):
            sample[name][...] = found * counts


def open_drawn_masks(
    folders: Sequence[Path],
    *,
    has_pairs: bool,
    max_sequence_length: int | None = None,
    predictions: int | None = None,
    vocab_size: int | None = None,
    tried: str = "",
) -> DrawnMasksDataset:
    """Open rows with masks, and check their files, all but the values of the rows after the first.

    Args:
        folders: each with a `meta.dat` and the files that it lists
        has_pairs: whether samples say if the second text follows the first
        max_sequence_length: tokens that a sample must have; None for the number in the files
        predictions: M where all tokens have labels; None for `usual_predictions`. Else the files give M.
        vocab_size: token ids must be below it; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    of_pairs = (SEGMENTS, NEXT) if has_pairs else ()
    rows = csv_rows(folders, NEEDED, of_pairs=of_pairs, tried=tried, hint=_PAIRS_HINT)
    first = rows.read(0)
    length = len(integers(first, INPUT_IDS))
    if length == 0:
        raise DataError(f"{first.where}: {INPUT_IDS} must have at least one token, got none")
    if max_sequence_length not in (None, length):
        raise DataError(
            f"{first.where}: {INPUT_IDS} must have max_sequence_length ({max_sequence_length:,}) tokens, got "
            f"{length:,}",
            "leave max_sequence_length out: masks that are drawn are not cut",
        )
    for file in rows.files:
        if (POSITIONS in file.columns) != (POSITIONS in first.values) or (
            POSITIONS in file.columns and WEIGHTS not in file.columns
        ):
            raise DataError(
                f"{file.path}: must have both {POSITIONS} and {WEIGHTS}, or neither in any file, got "
                f"{', '.join(file.columns)}"
            )
    if POSITIONS in first.values:
        most = len(integers(first, LABELS, least=None))
    else:
        most = min(length, predictions or usual_predictions(length))
    if most == 0:
        raise DataError(f"{first.where}: {LABELS} must have at least one, got none")
    return DrawnMasksDataset(
        rows, folders, sequence_length=length, predictions=most, has_pairs=has_pairs, vocab_size=vocab_size
    )
