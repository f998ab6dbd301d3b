"""Samples of a masked language model in the vendor's HDF5 layout, their masks drawn already.

A folder has files `*.h5`. Each holds `data` (n, 2, S) int32 = input_ids, attention_mask; packed samples go on with
attention_span and position_ids, (n, 4, S). `labels` is (n, 3, M) int32 = labels, positions, mask, or (n, 1, S), a label
for each token. Labels that do not count are negative.

In a packed sample, a token at position p of its own sequence, which goes on for r tokens, has position id p and
attention span r - 1 - p: it is seen from p tokens before it to r - 1 - p after it.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing/pretraining_token_generator.py and
vsl_pretraining_token_generator.py, data/nlp/bert/BertHDF5DataProcessor.py; the meaning of spans: `create_vsl_mask` in
common/utils/model/transformer_utils.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import usual_predictions
from cstool.training.data.dataset import Array, Field, described
from cstool.training.data.drawn_masks import gathered
from cstool.training.data.hdf5_rows import Hdf5Rows, check_count, check_numbers, dataset_in, inspected, sample_files
from cstool.training.data.masked_text import mlm_fields
from cstool.training.data.vocabulary import VOCAB_HINT

INPUT_IDS, ATTENTION, SPAN, POSITION = range(4)
FEATURES = ("input_ids", "attention_mask", "attention_span", "position_ids")
LABELS, PLACES, COUNTS = range(3)
_HINT = "its files hold data and labels, as the vendor's preprocessing with training_objective: mlm writes them"
_PACKED_HINT = "use_vsl: false takes samples that are not packed"


@dataclass(frozen=True)
class Hdf5MasksInfo:
    """The layout of a file; `predictions` is M, None where there is a label for each token."""

    path: Path
    sample_count: int
    sequence_length: int
    predictions: int | None
    features: int
    """of `data`"""


class Hdf5MasksDataset:
    """Samples of checked files, in the order of the files. Built by `open_hdf5_masks`."""

    def __init__(
        self,
        folders: Sequence[Path],
        files: Sequence[Hdf5MasksInfo],
        *,
        predictions: int,
        is_packed: bool,
        vocab_size: int | None,
    ) -> None:
        length = files[0].sequence_length
        fields = mlm_fields(length, predictions, has_pairs=False)
        if is_packed:
            fields |= {"segments": Field((length,), "int32"), "position_ids": Field((length,), "int32")}
        self.fields: Mapping[str, Field] = MappingProxyType(fields)
        self._rows = Hdf5Rows([file.path for file in files], [file.sample_count for file in files])
        self.sample_count = self._rows.count
        self._folders, self._predictions, self._is_packed = tuple(folders), predictions, is_packed
        self._is_gathered = files[0].predictions is not None
        self._limit = 2**31 if vocab_size is None else vocab_size

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return described(self._folders, self)

    def read(self, indices: Array, out: Mapping[str, Array], _epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        if len(indices) == 0:
            return
        order = np.argsort(indices, kind="stable")
        rows = indices[order]
        [length] = self.fields["input_ids"].shape
        data = np.empty((len(rows), 4 if self._is_packed else 2, length), np.int32)
        shape = (3, self._predictions) if self._is_gathered else (1, length)
        labels = np.empty((len(rows), *shape), np.int32)
        self._rows.read(rows, {"data": data, "labels": labels})
        self._check(rows, data[:, INPUT_IDS], 0, self._limit, FEATURES[INPUT_IDS], VOCAB_HINT)
        self._check(rows, data[:, ATTENTION], 0, 2, FEATURES[ATTENTION])
        self._check(rows, labels[:, LABELS], -(2**31), self._limit, "labels", VOCAB_HINT)
        for feature in (INPUT_IDS, ATTENTION):
            out[FEATURES[feature]][order] = data[:, feature]
        if self._is_gathered:
            self._check(rows, labels[:, PLACES], 0, length, "positions of labels")
            self._check(rows, labels[:, COUNTS], 0, 2, "the mask of labels")
            counts = labels[:, COUNTS] * (labels[:, LABELS] >= 0)
            out["masked_lm_positions"][order] = labels[:, PLACES] * counts
            out["labels"][order] = labels[:, LABELS] * counts
            out["mask"][order] = counts
        else:
            for i, place in enumerate(order.tolist()):
                sample = {name: array[place] for name, array in out.items()}
                gathered(self._where(int(rows[i])), labels[i, LABELS], self._predictions, sample)
        if self._is_packed:
            out["segments"][order] = self._segments(rows, data)
            out["position_ids"][order] = data[:, POSITION] * data[:, ATTENTION]

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._rows.close()

    def _segments(self, rows: Array, data: Array) -> Array:
        """Return (n, S): number of each token's sequence among the packed ones of its sample, from 1; 0 for padding."""
        is_real, span, position = data[:, ATTENTION] == 1, data[:, SPAN], data[:, POSITION]
        begins = is_real & (position == 0)
        places = np.arange(data.shape[2])
        first, last = places - position, places + span
        ends = np.ones_like(begins)
        ends[:, :-1] = ~is_real[:, 1:] | begins[:, 1:]
        goes_on = is_real & ~begins
        wrong = is_real & (ends != (span == 0))
        wrong[:, 0] |= goes_on[:, 0]
        same = is_real[:, :-1] & (first[:, 1:] == first[:, :-1]) & (last[:, 1:] == last[:, :-1])
        wrong[:, 1:] |= goes_on[:, 1:] & ~same
        if wrong.any():
            i, place = (int(found) for found in np.argwhere(wrong)[0])
            raise DataError(
                f"{self._where(int(rows[i]))}: spans and positions must be those of sequences back to back, got span "
                f"{span[i, place]} at position id {position[i, place]}, at position {place:,}",
                _PACKED_HINT,
            )
        segments: Array = np.cumsum(begins, axis=1) * is_real
        return segments

    def _check(self, rows: Array, values: Array, least: int, limit: int, name: str, hint: str | None = None) -> None:
        if values.min() >= least and values.max() < limit:
            return
        i, place = (int(found) for found in np.argwhere((values < least) | (values >= limit))[0])
        rule = f"must be in [{least}, {limit})" if least == 0 else f"must be below {limit}"
        raise DataError(
            f"{self._where(int(rows[i]))}: {name} {rule}, got {values[i, place]} at position {place:,}", hint
        )

    def _where(self, row: int) -> str:
        path, number = self._rows.place(row)
        return f"{path}: sample {number:,}"


def open_hdf5_masks(
    folders: Sequence[Path],
    *,
    is_packed: bool = False,
    max_sequence_length: int | None = None,
    predictions: int | None = None,
    vocab_size: int | None = None,
    tried: str = "",
) -> Hdf5MasksDataset:
    """Open samples with masks, and check their files, all but the values of the samples.

    Args:
        folders: each with files `*.h5`, read in the order of their names
        is_packed: whether a sample is several sequences that do not see each other
        max_sequence_length: tokens that a sample must have; None for the number in the files
        predictions: M where all tokens have labels; None for `usual_predictions`. Else the files give M.
        vocab_size: token ids must be below it, checked as they are read; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    files = [inspect_masks(path) for folder in folders for path in sample_files(folder, tried, _HINT)]
    first = files[0]
    for file in files:
        if is_packed and file.features < len(FEATURES):
            raise DataError(
                f'{file.path}: dataset "data" must have {len(FEATURES)} features of packed samples, '
                f"{', '.join(FEATURES)}, got {file.features}",
                _PACKED_HINT,
            )
        if (file.sequence_length, file.predictions) != (first.sequence_length, first.predictions):
            raise DataError(
                f"{file.path}: samples must have {_told(first)}, as in {first.path}, got {_told(file)}",
                "keep samples of different lengths in different folders, and use one of them",
            )
    length = first.sequence_length
    if max_sequence_length not in (None, length):
        raise DataError(
            f"{first.path}: samples must have max_sequence_length ({max_sequence_length:,}) tokens, got {length:,}",
            "leave max_sequence_length out: masks that are drawn are not cut",
        )
    most = first.predictions
    if most is None:
        most = min(length, usual_predictions(length) if predictions is None else predictions)
    return Hdf5MasksDataset(folders, files, predictions=most, is_packed=is_packed, vocab_size=vocab_size)


def masks_of_file(path: Path, vocab_size: int | None) -> Hdf5MasksDataset:
    """Open the samples of one file, packed if they can be, or raise DataError."""
    file = inspect_masks(path)
    most = usual_predictions(file.sequence_length) if file.predictions is None else file.predictions
    is_packed = file.features >= len(FEATURES)
    return Hdf5MasksDataset([path.parent], [file], predictions=most, is_packed=is_packed, vocab_size=vocab_size)


def inspect_masks(path: Path) -> Hdf5MasksInfo:
    """Check a file, all but the values of its samples, or raise DataError."""

    def inspect(file: h5py.File) -> Hdf5MasksInfo:
        data, labels = (dataset_in(path, file, name, _HINT) for name in ("data", "labels"))
        if data.ndim != 3 or data.shape[1] < 2 or data.shape[2] == 0:
            raise DataError(
                f'{path}: dataset "data" must have the shape (samples, 2 or more, tokens), got {data.shape}',
                f"the first two are {FEATURES[INPUT_IDS]} and {FEATURES[ATTENTION]}",
            )
        length = data.shape[2]
        is_gathered = labels.ndim == 3 and labels.shape[1] == 3 and labels.shape[2] > 0
        if labels.ndim != 3 or len(labels) != len(data) or not (is_gathered or labels.shape[1:] == (1, length)):
            raise DataError(
                f'{path}: dataset "labels" must have the shape ({len(data):,}, 3, predictions) or '
                f"({len(data):,}, 1, {length:,}), got {labels.shape}"
            )
        for name, found in (("data", data), ("labels", labels)):
            check_numbers(path, found, name)
        check_count(path, file, len(data))
        return Hdf5MasksInfo(path, len(data), length, labels.shape[2] if is_gathered else None, data.shape[1])

    return inspected(path, inspect)


def _told(file: Hdf5MasksInfo) -> str:
    labels = "a label for each" if file.predictions is None else f"{file.predictions:,} labels"
    return f"{file.sequence_length:,} tokens and {labels}"
