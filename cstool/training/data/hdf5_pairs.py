"""Samples of encoder-decoders in the vendor's HDF5 layout.

A folder has files `*.h5`. Features of one length are the rows of one dataset: `data` (n, features, tokens) int32 where
all are of one length, else `data_0`, `data_1` and so on. Their names are in `data_params.json` of the folder, or, of
`data`, in the dataloader's `features_list`.

Source: Cerebras Model Zoo 2.10.0, data/common/HDF5IterableDataset.py,
data_preparation/nlp/hdf5_preprocessing/convert_dataset_to_HDF5.py.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import h5py
import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field, described
from cstool.training.data.hdf5_rows import Hdf5Rows, check_count, check_numbers, dataset_in, inspected, sample_files
from cstool.training.data.sequence_pairs import pair_fields

INPUT_IDS, ATTENTION, DECODER_INPUT_IDS, DECODER_ATTENTION, LABELS = FEATURES = (
    "input_ids",
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
    "labels",
)
PARAMS_FILE = "data_params.json"
_HINT = f"{PARAMS_FILE} of the folder says what its datasets hold; else features_list of the dataloader does"
_ROLES = {INPUT_IDS: 0, ATTENTION: 0, DECODER_INPUT_IDS: 1, DECODER_ATTENTION: 1, LABELS: 1}
"""feature -> 0 of the encoder, 1 of the decoder"""


class Place(NamedTuple):
    """The place of a feature: a dataset, and a row of it."""

    dataset: str
    row: int


class _File(NamedTuple):
    path: Path
    sample_count: int
    lengths: Mapping[str, int]
    """dataset -> tokens of its features"""


class Hdf5PairsDataset:
    """Samples of checked files, in the order of the files. Built by `open_hdf5_pairs`."""

    def __init__(
        self, folders: Sequence[Path], files: Sequence[_File], places: Mapping[str, Place], vocab_size: int | None
    ) -> None:
        source, target = (files[0].lengths[places[name].dataset] for name in (INPUT_IDS, LABELS))
        self.fields: Mapping[str, Field] = MappingProxyType(pair_fields(source, target))
        self._rows = Hdf5Rows([file.path for file in files], [file.sample_count for file in files])
        self.sample_count = self._rows.count
        self._folders, self._places, self._lengths = tuple(folders), places, files[0].lengths
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
        features = {name: 1 + max(p.row for p in self._places.values() if p.dataset == name) for name in self._lengths}
        read = {name: np.empty((len(rows), features[name], length), np.int32) for name, length in self._lengths.items()}
        self._rows.read(rows, read)
        found = {name: read[place.dataset][:, place.row] for name, place in self._places.items()}
        counts = found[DECODER_ATTENTION]
        found[LABELS] = found[LABELS] * (counts == 1)
        for name, values in found.items():
            self._check(rows, name, values, 2 if name in (ATTENTION, DECODER_ATTENTION) else self._limit)
            out[name][order] = values
        out["mask"][order] = counts

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._rows.close()

    def _check(self, rows: Array, name: str, values: Array, limit: int) -> None:
        wrong = (values < 0) | (values >= limit)
        if not wrong.any():
            return
        i, position = (int(found) for found in np.argwhere(wrong)[0])
        path, row = self._rows.place(int(rows[i]))
        raise DataError(
            f"{path}: {name} must be in [0, {limit}), got {values[i, position]} in sample {row:,} at position "
            f"{position:,}",
            None if limit == 2 else "vocab_size of the model must be that of the data set",
        )


def open_hdf5_pairs(
    folders: Sequence[Path], *, features: Sequence[str] | None = None, vocab_size: int | None = None, tried: str = ""
) -> Hdf5PairsDataset:
    """Open samples of encoder-decoders and check their files, all but the values of the samples.

    Args:
        folders: each with files `*.h5`, read in the order of their names
        features: of the dataset `data`, where a folder does not say it itself
        vocab_size: token ids must be below it, checked as they are read; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    layouts = [_places(folder, features) for folder in folders]
    for folder, places in zip(folders, layouts, strict=True):
        if places != layouts[0]:
            raise DataError(f"{folder}: must have the features in the same places as {folders[0]}", _HINT)
    files = [
        _inspect(path, places)
        for folder, places in zip(folders, layouts, strict=True)
        for path in sample_files(folder, tried, _HINT)
    ]
    for file in files:
        if file.lengths != files[0].lengths:
            told = ", ".join(f"{length:,} of {name}" for name, length in files[0].lengths.items())
            got = ", ".join(f"{length:,} of {name}" for name, length in file.lengths.items())
            raise DataError(f"{file.path}: samples must have the tokens of {files[0].path} ({told}), got {got}")
    return Hdf5PairsDataset(folders, files, layouts[0], vocab_size)


def _places(folder: Path, features: Sequence[str] | None) -> dict[str, Place]:
    """Return the place of each feature in the files of a folder, or raise DataError."""
    groups = _groups(folder)
    where = f"{folder / PARAMS_FILE}"
    if groups is None:
        groups, where = {"data": list(features or ())}, f"{folder}: features_list"
    found = {name: Place(dataset, row) for dataset, names in groups.items() for row, name in enumerate(names)}
    if missing := [name for name in FEATURES if name not in found]:
        got = ", ".join(found) or "none"
        rule = f"{where}: must have the features {', '.join(FEATURES)}, got {got}"
        raise DataError(rule, f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; {_HINT}")
    for role in (0, 1):
        names = [name for name in FEATURES if _ROLES[name] == role]
        if len({found[name].dataset for name in names}) > 1:
            raise DataError(f"{where}: {', '.join(names)} must be in one dataset, got several")
    return {name: found[name] for name in FEATURES}


def _groups(folder: Path) -> dict[str, list[str]] | None:
    """Return the features of each dataset by the folder's record; None without one."""
    path = folder / PARAMS_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError, RecursionError):
        raise DataError(f"{path}: must be readable JSON, got something else", _HINT) from None
    if not isinstance(content, dict):
        return None
    names = [("data", "features")] if "features" in content else []
    names += [] if names else [(key.removesuffix("_features"), key) for key in content if _is_group(key)]
    groups = {dataset: content[key] for dataset, key in names}
    if not all(isinstance(group, list) and all(isinstance(name, str) for name in group) for group in groups.values()):
        raise DataError(f"{path}: must list the names of features, got something else", _HINT)
    return groups or None


def _is_group(key: str) -> bool:
    return key.startswith("data_") and key.endswith("_features") and key[5:-9].isdigit()


def _inspect(path: Path, places: Mapping[str, Place]) -> _File:
    """Check a file, all but the values of its samples, or raise DataError."""

    def inspect(file: h5py.File) -> _File:
        lengths, counts = {}, {}
        for name in dict.fromkeys(place.dataset for place in places.values()):
            data = dataset_in(path, file, name, _HINT)
            needed = 1 + max(place.row for place in places.values() if place.dataset == name)
            if data.ndim != 3 or data.shape[1] < needed or data.shape[2] == 0:
                raise DataError(
                    f'{path}: dataset "{name}" must have the shape (samples, features, tokens) with at least {needed} '
                    f"features, got {data.shape}",
                    _HINT,
                )
            check_numbers(path, data, name)
            check_count(path, file, len(data))
            lengths[name], counts[name] = data.shape[2], len(data)
        return _File(path, next(iter(counts.values())), lengths)

    return inspected(path, inspect)
