"""Questions with their contexts in the vendor's HDF5 layout for DPR.

A folder has files `*.h5` and `data_params.json`. A file holds two datasets of int32: of questions (n, 3, S) and of
contexts (n, 3, C, S'), the right one first, then hard negatives. `data_params.json` has the features of each,
in their order: `data_0_features`, `data_1_features`.

Source: Cerebras Model Zoo 2.10.0, data/nlp/dpr/data_processing/convert_dpr_dataset.py and
data_preparation/nlp/hdf5_preprocessing/convert_dataset_to_HDF5.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field
from cstool.training.data.hdf5_rows import Hdf5Rows, check_count, check_numbers, dataset_in, inspected, sample_files

PARTS = ("input_ids", "attention_mask", "token_type_ids")
SIDES = ("questions_", "ctx_")
RECORD = "data_params.json"
_HINT = f"its files hold data_0 and data_1, and {RECORD} says what is in them, as the vendor's preparation writes them"
_VOCAB_HINT = "vocab_size of both encoders must be that of the data set"
_KINDS_OF_TOKENS = 2


@dataclass(frozen=True)
class _File:
    path: Path
    sample_count: int
    shapes: Mapping[str, tuple[int, ...]]
    """dataset -> shape of a sample"""


class Hdf5ContextsDataset:
    """Samples of checked files, in the order of the files. Built by `open_hdf5_contexts`."""

    def __init__(
        self,
        folders: Sequence[Path],
        files: Sequence[_File],
        features: Mapping[str, Sequence[str]],
        vocab_size: int | None,
    ) -> None:
        shapes = files[0].shapes
        found = {name: Field(shapes[table][1:], "int32") for table, names in features.items() for name in names}
        # Contexts are numbered by themselves, so there is nothing that labels could say.
        self.fields: Mapping[str, Field] = MappingProxyType({**found, "mask": Field((1,), "float32")})
        self._rows = Hdf5Rows([file.path for file in files], [file.sample_count for file in files])
        self.sample_count = self._rows.count
        self._folders, self._features, self._shapes = tuple(folders), features, shapes
        self._limits = dict(zip(PARTS, (2**31 if vocab_size is None else vocab_size, 2, _KINDS_OF_TOKENS), strict=True))

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        more = f" and {len(self._folders) - 1} more" if len(self._folders) > 1 else ""
        contexts, length = self.fields["ctx_input_ids"].shape
        [asked] = self.fields["questions_input_ids"].shape
        return (
            f"{self._folders[0]}{more}: {self.sample_count:,} questions of {asked:,} tokens, each with {contexts} "
            f"contexts of {length:,}"
        )

    def read(self, indices: Array, out: Mapping[str, Array], _epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        if len(indices) == 0:
            return
        order = np.argsort(indices, kind="stable")
        rows = indices[order]
        tables = {table: np.empty((len(rows), *shape), np.int32) for table, shape in self._shapes.items()}
        self._rows.read(rows, tables)
        for table, names in self._features.items():
            for place, name in enumerate(names):
                values = tables[table][:, place]
                self._check(rows, values, name)
                out[name][order] = values
        out["mask"][...] = 1.0

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._rows.close()

    def _check(self, rows: Array, values: Array, name: str) -> None:
        limit = self._limits[name.partition("_")[2]]
        if values.min() >= 0 and values.max() < limit:
            return
        place = np.argwhere((values < 0) | (values >= limit))[0].tolist()
        path, number = self._rows.place(int(rows[place[0]]))
        raise DataError(
            f"{path}: sample {number:,}: {name} must be in [0, {limit}), got {values[tuple(place)]} at position "
            f"{place[-1]:,}",
            _VOCAB_HINT if name.endswith(PARTS[0]) else None,
        )


def open_hdf5_contexts(
    folders: Sequence[Path], *, vocab_size: int | None = None, tried: str = ""
) -> Hdf5ContextsDataset:
    """Open questions with their contexts, and check their files, all but the values of the samples.

    Args:
        folders: each with files `*.h5`, read in the order of their names, and `data_params.json`
        vocab_size: number of tokens of the model; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    files: list[_File] = []
    features: Mapping[str, Sequence[str]] = {}
    for folder in folders:
        paths = sample_files(folder, tried, _HINT)
        found = _features_of(folder)
        if features and found != features:
            raise DataError(f"{folder / RECORD}: features must be those of {folders[0] / RECORD}, in their order")
        features = found
        files += [_inspect(path, features) for path in paths]
    first = files[0]
    for file in files:
        if file.shapes != first.shapes:
            raise DataError(
                f"{file.path}: samples must have the shapes {_told(first)}, as in {first.path}, got {_told(file)}",
                "keep samples of different shapes in different folders, and use one of them",
            )
    return Hdf5ContextsDataset(folders, files, features, vocab_size)


def contexts_of_file(path: Path, vocab_size: int | None) -> Hdf5ContextsDataset:
    """Open the samples of one file, whose layout its folder gives, or raise DataError."""
    features = _features_of(path.parent)
    return Hdf5ContextsDataset([path.parent], [_inspect(path, features)], features, vocab_size)


def _features_of(folder: Path) -> Mapping[str, Sequence[str]]:
    """Return the features of the datasets of a folder's files, questions first, or raise DataError."""
    path = folder / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: must hold {RECORD}, found nothing there", _HINT) from None
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}: must be JSON, got something else", _HINT) from None
    tables = {f"data_{n}": record.get(f"data_{n}_features") if isinstance(record, dict) else None for n in range(2)}
    found: dict[str, Sequence[str]] = {}
    for side in SIDES:
        names = {side + part for part in PARTS}
        fitting = (t for t, own in tables.items() if isinstance(own, list) and sorted(map(str, own)) == sorted(names))
        if (table := next(fitting, None)) is None:
            raise DataError(
                f"{path}: data_0_features and data_1_features must be "
                f"{', '.join(s + p for s in SIDES for p in PARTS)}, those of "
                f"questions in one and those of contexts in the other, got "
                f"{', '.join(str(own) for own in tables.values())}",
                _HINT,
            )
        found[table] = tuple(tables[table] or ())
    return found


def _inspect(path: Path, features: Mapping[str, Sequence[str]]) -> _File:
    """Check a file, all but the values of its samples, or raise DataError."""

    def inspect(file: h5py.File) -> _File:
        shapes: dict[str, tuple[int, ...]] = {}
        counts = []
        for side, table in zip(SIDES, features, strict=True):
            data = dataset_in(path, file, table, _HINT)
            axes = 3 if side == SIDES[0] else 4
            if data.ndim != axes or data.shape[1] != len(PARTS) or 0 in data.shape[1:]:
                form = "(samples, 3, tokens)" if axes == 3 else "(samples, 3, contexts, tokens)"
                raise DataError(f'{path}: dataset "{table}" must have the shape {form}, got {data.shape}')
            check_numbers(path, data, table)
            shapes[table] = data.shape[1:]
            counts.append(len(data))
        if counts[0] != counts[1]:
            raise DataError(f"{path}: must have contexts for {counts[0]:,} questions, got {counts[1]:,}")
        check_count(path, file, counts[0])
        return _File(path, counts[0], shapes)

    return inspected(path, inspect)


def _told(file: _File) -> str:
    return " and ".join(str(shape) for shape in file.shapes.values())
