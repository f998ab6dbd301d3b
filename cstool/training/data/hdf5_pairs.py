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
from typing import NamedTuple

from cstool.foundation.errors import DataError
from cstool.model.params import Hdf5PairsParams
from cstool.training.data.dataset import ANY_MODEL, Array, ModelSize
from cstool.training.data.hdf5_rows import (
    Hdf5Dataset,
    SampleFileInfo,
    check_count,
    check_table,
    dataset_in,
    inspected,
    sample_paths,
)
from cstool.training.data.sequence_pairs import pair_fields
from cstool.training.data.vocabulary import VOCAB_HINT

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


class Hdf5PairsDataset(Hdf5Dataset):
    """Samples of pairs. The section has the features of `data` where a folder does not say them itself."""

    def __init__(self, loader: Hdf5PairsParams, model: ModelSize = ANY_MODEL) -> None:
        layouts = {folder: _places(folder, loader.features_list) for folder in loader.data_dir}
        [first_folder, self._places], *_ = layouts.items()
        for folder, places in layouts.items():
            if places != self._places:
                raise DataError(f"{folder}: must have the features in the same places as {first_folder}", _HINT)
        files = [_inspect(path, self._places) for path in sample_paths(loader, _HINT)]
        shapes = files[0].shapes
        for file in files:
            if file.shapes != shapes:
                told, got = (
                    ", ".join(f"{length:,} of {name}" for name, (_, length) in each.shapes.items())
                    for each in (files[0], file)
                )
                raise DataError(f"{file.path}: samples must have the tokens of {files[0].path} ({told}), got {got}")
        source, target = (shapes[self._places[name].dataset][1] for name in (INPUT_IDS, LABELS))
        super().__init__(loader.data_dir, files, pair_fields(source, target), shapes, model.vocab_size)

    def samples(self, rows: Array, tables: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return all fields."""
        found = {name: tables[place.dataset][:, place.row] for name, place in self._places.items()}
        counts = found[DECODER_ATTENTION]
        found[LABELS] = found[LABELS] * (counts == 1)
        for name, values in found.items():
            limit, hint = (2, None) if name in (ATTENTION, DECODER_ATTENTION) else (self.token_limit, VOCAB_HINT)
            self.check(rows, name, values, limit, hint)
        return {**found, "mask": counts}


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


def _inspect(path: Path, places: Mapping[str, Place]) -> SampleFileInfo:
    """Check a file, all but the values of its samples, or raise DataError; features not asked for do not count."""
    shapes, counts = {}, []
    with inspected(path) as file:
        for name in dict.fromkeys(place.dataset for place in places.values()):
            data = dataset_in(path, file, name, _HINT)
            needed = 1 + max(place.row for place in places.values() if place.dataset == name)
            fits = data.ndim == 3 and data.shape[1] >= needed and data.shape[2] > 0
            form = f"(samples, features, tokens) with at least {needed} features"
            check_table(path, name, data, fits, form, _HINT)
            check_count(path, file, len(data))
            shapes[name] = needed, data.shape[2]
            counts.append(len(data))
        return SampleFileInfo(path, counts[0], shapes)
