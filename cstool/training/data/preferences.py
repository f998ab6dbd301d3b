"""Pairs of a chosen and a rejected text in the vendor's HDF5 layout.

A folder of files `*.h5`; each holds a dataset `data` (n, 6, S) int32: input_ids, attention_mask and labels of the
chosen text, then the same of the rejected one, and the file attribute `n_examples`. An attention mask is really the
mask of the labels: 1 where one counts, which is in the answers, not in the prompts before them.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing/dpo_token_generator.py, data/nlp/dpo.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field
from cstool.training.data.hdf5_rows import Hdf5Rows, check_count, check_numbers, dataset_in, inspected, sample_files
from cstool.training.data.hdf5_text import SampleFileInfo
from cstool.training.data.vocabulary import VOCAB_HINT

TEXTS = ("chosen", "rejected")
INPUT_IDS, MASK, LABELS = range(3)
PARTS = ("input_ids", "attention_mask", "labels")
FEATURES = tuple(f"{text}_{part}" for text in TEXTS for part in PARTS)
_TOKEN_LIMIT = 2**31
_HINT = "its files hold data, as the vendor's preprocessing with mode: dpo writes them"


class PreferenceDataset:
    """Pairs of checked files, in the order of the files. Built by `open_preferences`."""

    def __init__(
        self, folders: Sequence[Path], files: Sequence[SampleFileInfo], sequence_length: int, vocab_size: int | None
    ) -> None:
        tokens = len(TEXTS) * sequence_length
        self.fields: Mapping[str, Field] = MappingProxyType(
            {
                "input_ids": Field((tokens,), "int32"),
                "label_mask": Field((tokens,), "float32"),
                "labels": Field((tokens,), "int32"),
                "mask": Field((1,), "float32"),
            }
        )
        self._folders = tuple(folders)
        self._rows = Hdf5Rows([file.path for file in files], [file.sample_count for file in files])
        self.sample_count = self._rows.count
        self.sequence_length = sequence_length
        self._limit = _TOKEN_LIMIT if vocab_size is None else vocab_size

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        more = f" and {len(self._folders) - 1} more" if len(self._folders) > 1 else ""
        return f"{self._folders[0]}{more}: {self.sample_count:,} pairs of texts of {self.sequence_length:,} tokens"

    def read(self, indices: Array, out: Mapping[str, Array], _epoch: int = 0, /) -> None:
        """Fill `input_ids`, `labels`, 0 where they do not count, `label_mask`, all (n, 2 S), and `mask`, ones.

        See `Dataset.read`.
        """
        order = np.argsort(indices, kind="stable")
        rows = indices[order]
        if len(rows) == 0:
            return
        pairs = np.empty((len(rows), len(FEATURES), self.sequence_length), np.int32)
        self._rows.read(rows, {"data": pairs})
        by_text = pairs.reshape(len(rows), len(TEXTS), len(PARTS), self.sequence_length)
        by_text[:, :, LABELS] *= by_text[:, :, MASK] == 1
        for row in range(len(FEATURES)):
            self._check_range(pairs, row, 2 if row % len(PARTS) == MASK else self._limit, rows)
        self._check_counts(by_text[:, :, MASK], rows)
        for name, part in (("input_ids", INPUT_IDS), ("label_mask", MASK), ("labels", LABELS)):
            out[name][order] = by_text[:, :, part].reshape(len(rows), -1)
        out["mask"][order] = 1

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._rows.close()

    def _check_range(self, pairs: Array, feature: int, limit: int, rows: Array) -> None:
        values = pairs[:, feature]
        if values.min() >= 0 and values.max() < limit:
            return
        i, position = (int(found) for found in np.argwhere((values < 0) | (values >= limit))[0])
        path, row = self._rows.place(int(rows[i]))
        raise DataError(
            f"{path}: {FEATURES[feature]} must be in [0, {limit}), "
            f"got {values[i, position]} in sample {row:,} at position {position:,}",
            None if feature % len(PARTS) == MASK else VOCAB_HINT,
        )

    def _check_counts(self, masks: Array, rows: Array) -> None:
        """Check that each text has a label that counts: without one there is nothing to prefer."""
        counts = masks.any(axis=2)
        if counts.all():
            return
        i, text = (int(found) for found in np.argwhere(~counts)[0])
        path, row = self._rows.place(int(rows[i]))
        raise DataError(
            f"{path}: {TEXTS[text]}_attention_mask must be 1 where a label counts, got none in sample {row:,}",
            "its answer may have been cut off: leave the pair out, or make the texts longer",
        )


def open_preferences(
    folders: Sequence[Path], *, max_sequence_length: int | None = None, vocab_size: int | None = None, tried: str = ""
) -> PreferenceDataset:
    """Open pairs of texts and check their files, all but the values of the samples.

    Args:
        folders: each with files `*.h5`, read in the order of their names
        max_sequence_length: tokens that a text must have; None for the number in the files
        vocab_size: token ids must be below it, checked as they are read; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    files = [inspect_pairs(path) for folder in folders for path in sample_files(folder, tried, _HINT)]
    first = files[0]
    length = first.sequence_length
    for file in files:
        if file.sequence_length != length:
            raise DataError(
                f"{file.path}: texts must have {length:,} tokens, as in {first.path}, got {file.sequence_length:,}",
                "keep texts of different lengths in different folders, and use one of them",
            )
    if max_sequence_length not in (None, length):
        raise DataError(
            f"{first.path}: texts must have max_sequence_length ({max_sequence_length:,}) tokens, got {length:,}",
            "leave max_sequence_length out: pairs are not cut",
        )
    return PreferenceDataset(folders, files, length, vocab_size)


def preferences_of_file(path: Path, vocab_size: int | None) -> PreferenceDataset:
    """Open the pairs of one file, or raise DataError."""
    file = inspect_pairs(path)
    return PreferenceDataset([path.parent], [file], file.sequence_length, vocab_size)


def inspect_pairs(path: Path) -> SampleFileInfo:
    """Check a file, all but the values of its samples, or raise DataError."""

    def inspect(file: h5py.File) -> SampleFileInfo:
        data = dataset_in(path, file, "data", _HINT)
        if data.ndim != 3 or data.shape[1] != len(FEATURES) or data.shape[2] == 0:
            raise DataError(
                f'{path}: dataset "data" must have the shape (samples, {len(FEATURES)}, tokens), got {data.shape}',
                f"the {len(FEATURES)} are {', '.join(FEATURES)}",
            )
        check_numbers(path, data, "data")
        check_count(path, file, len(data))
        return SampleFileInfo(path, len(data), data.shape[2])

    return inspected(path, inspect)
