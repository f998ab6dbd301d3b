"""Samples of a masked language model whose masks are drawn already, with labels for positions or for all tokens.

Rows with positions have a label for each position. Other rows have a label for each token, negative where it does not
count; at most M labels of a sample count.

Source: Cerebras Model Zoo 2.10.0, data/nlp/bert/BertCSVDataProcessor.py.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import DrawnMasksParams, usual_predictions
from cstool.training.data.dataset import ANY_MODEL, Array, ModelSize
from cstool.training.data.masked_text import mlm_fields
from cstool.training.data.row_dataset import RowDataset, integer, integers, of_length
from cstool.training.data.row_files import Row, csv_rows
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
    """Rows with lists of numbers. Where all tokens have labels the section gives M, or `usual_predictions`."""

    def __init__(self, loader: DrawnMasksParams, model: ModelSize = ANY_MODEL) -> None:
        of_pairs = (SEGMENTS, NEXT) if loader.has_pairs else ()
        rows = csv_rows(loader.data_dir, NEEDED, of_pairs=of_pairs, tried=loader.tried, hint=_PAIRS_HINT)
        first = rows.read(0)
        length, wanted = len(integers(first, INPUT_IDS)), loader.max_sequence_length
        if length == 0:
            raise DataError(f"{first.where}: {INPUT_IDS} must have at least one token, got none")
        if wanted not in (None, length):
            raise DataError(
                f"{first.where}: {INPUT_IDS} must have max_sequence_length ({wanted:,}) tokens, got {length:,}",
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
            most = min(length, loader.predictions or usual_predictions(length))
        if most == 0:
            raise DataError(f"{first.where}: {LABELS} must have at least one, got none")
        super().__init__(rows, mlm_fields(length, most, has_pairs=loader.has_pairs), loader.data_dir)
        self._length, self._predictions, self._limit = length, most, model.token_limit

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
