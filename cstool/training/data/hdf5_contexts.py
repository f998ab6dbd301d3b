"""Questions with their contexts in the vendor's HDF5 layout for DPR.

A folder has files `*.h5` and `data_params.json`. A file holds two datasets of int32: of questions (n, 3, S) and of
contexts (n, 3, C, S'), the right one first, then hard negatives. `data_params.json` has the features of each,
in their order: `data_0_features`, `data_1_features`.

Source: Cerebras Model Zoo 2.10.0, data/nlp/dpr/data_processing/convert_dpr_dataset.py and
data_preparation/nlp/hdf5_preprocessing/convert_dataset_to_HDF5.py.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cstool.foundation.errors import DataError
from cstool.model.params import DprLoaderParams
from cstool.training.data.dataset import ANY_MODEL, Array, Field, ModelSize
from cstool.training.data.hdf5_rows import (
    Hdf5Dataset,
    SampleFileInfo,
    check_count,
    check_table,
    dataset_in,
    inspected,
    sample_files,
)

PARTS = ("input_ids", "attention_mask", "token_type_ids")
SIDES = ("questions_", "ctx_")
RECORD = "data_params.json"
_HINT = f"its files hold data_0 and data_1, and {RECORD} says what is in them, as the vendor's preparation writes them"
_VOCAB_HINT = "vocab_size of both encoders must be that of the data set"
_KINDS_OF_TOKENS = 2


class Hdf5ContextsDataset(Hdf5Dataset):
    """Questions with contexts; each folder has its `data_params.json`."""

    number_first = True

    def __init__(self, loader: DprLoaderParams, model: ModelSize = ANY_MODEL, paths: Sequence[Path] = ()) -> None:
        files: list[SampleFileInfo] = []
        self._features: Mapping[str, Sequence[str]] = {}
        for folder in loader.data_dir:
            inside = paths or sample_files(folder, loader.tried, _HINT)
            found = _features_of(folder)
            if self._features and found != self._features:
                before = loader.data_dir[0] / RECORD
                raise DataError(f"{folder / RECORD}: features must be those of {before}, in their order")
            self._features = found
            files += [_inspect(path, found) for path in inside]
        first, shapes = files[0], files[0].shapes
        for file in files:
            if file.shapes != shapes:
                raise DataError(
                    f"{file.path}: samples must have the shapes {_told(first)}, as in {first.path}, got {_told(file)}",
                    "keep samples of different shapes in different folders, and use one of them",
                )
        named = ((name, table) for table, names in self._features.items() for name in names)
        fields = {name: Field(shapes[table][1:], "int32") for name, table in named}
        # Contexts are numbered by themselves, so there is nothing that labels could say.
        fields["mask"] = Field((1,), "float32")
        super().__init__(loader.data_dir, files, fields, shapes, model.vocab_size)
        self._limits = dict(zip(PARTS, (self.token_limit, 2, _KINDS_OF_TOKENS), strict=True))

    def told(self) -> str:
        """Return the kind of the samples, for `describe`."""
        contexts, length = self.fields["ctx_input_ids"].shape
        [asked] = self.fields["questions_input_ids"].shape
        return f"questions of {asked:,} tokens, each with {contexts} contexts of {length:,}"

    def samples(self, rows: Array, tables: Mapping[str, Array]) -> Mapping[str, Array | int]:
        """Return all fields."""
        found: dict[str, Array | int] = {"mask": 1}
        for table, names in self._features.items():
            for place, name in enumerate(names):
                found[name] = values = tables[table][:, place]
                part = name.partition("_")[2]
                self.check(rows, name, values, self._limits[part], _VOCAB_HINT if part == PARTS[0] else None)
        return found


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


def _inspect(path: Path, features: Mapping[str, Sequence[str]]) -> SampleFileInfo:
    """Check a file, all but the values of its samples, or raise DataError."""
    shapes, counts = {}, []
    with inspected(path) as file:
        for axes, table in zip((3, 4), features, strict=True):
            data = dataset_in(path, file, table, _HINT)
            fits = data.ndim == axes and data.shape[1] == len(PARTS) and 0 not in data.shape[1:]
            check_table(path, table, data, fits, f"(samples, 3, {'tokens' if axes == 3 else 'contexts, tokens'})")
            shapes[table] = data.shape[1:]
            counts.append(len(data))
        if counts[0] != counts[1]:
            raise DataError(f"{path}: must have contexts for {counts[0]:,} questions, got {counts[1]:,}")
        check_count(path, file, counts[0])
        return SampleFileInfo(path, counts[0], shapes)


def _told(file: SampleFileInfo) -> str:
    return " and ".join(str(shape) for shape in file.shapes.values())
