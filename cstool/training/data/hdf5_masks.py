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
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import Hdf5MasksParams, usual_predictions
from cstool.training.data.dataset import ANY_MODEL, Array, Field, ModelSize, allocate
from cstool.training.data.drawn_masks import gathered
from cstool.training.data.hdf5_rows import (
    Hdf5Dataset,
    SampleFileInfo,
    check_count,
    check_table,
    dataset_in,
    inspected,
    sample_paths,
)
from cstool.training.data.hdf5_text import PACKED_HINT
from cstool.training.data.masked_text import mlm_fields
from cstool.training.data.vocabulary import VOCAB_HINT

INPUT_IDS, ATTENTION, SPAN, POSITION = range(4)
FEATURES = ("input_ids", "attention_mask", "attention_span", "position_ids")
LABELS, PLACES, COUNTS = range(3)
_HINT = "its files hold data and labels, as the vendor's preprocessing with training_objective: mlm writes them"


class Hdf5MasksDataset(Hdf5Dataset):
    """Samples with masks. Samples of single files are packed if they can be.

    Where all tokens have labels the section gives M, or `usual_predictions`; else the files do.
    """

    number_first = True

    def __init__(self, loader: Hdf5MasksParams, model: ModelSize = ANY_MODEL, paths: Sequence[Path] = ()) -> None:
        files = [inspect_masks(path) for path in paths or sample_paths(loader, _HINT)]
        first, wanted = files[0], loader.max_sequence_length
        self._is_packed = first.features >= len(FEATURES) if paths else loader.is_packed
        for file in files:
            if self._is_packed and file.features < len(FEATURES):
                raise DataError(
                    f'{file.path}: dataset "data" must have {len(FEATURES)} features of packed samples, '
                    f"{', '.join(FEATURES)}, got {file.features}",
                    PACKED_HINT,
                )
            if (file.sequence_length, _predictions(file)) != (first.sequence_length, _predictions(first)):
                raise DataError(
                    f"{file.path}: samples must have {_told(first)}, as in {first.path}, got {_told(file)}",
                    "keep samples of different lengths in different folders, and use one of them",
                )
        length = first.sequence_length
        if wanted not in (None, length):
            raise DataError(
                f"{first.path}: samples must have max_sequence_length ({wanted:,}) tokens, got {length:,}",
                "leave max_sequence_length out: masks that are drawn are not cut",
            )
        self._is_gathered = _predictions(first) is not None
        self._most = _predictions(first) or min(length, loader.predictions or usual_predictions(length))
        fields = mlm_fields(length, self._most, has_pairs=False)
        if self._is_packed:
            fields |= {"segments": Field((length,), "int32"), "position_ids": Field((length,), "int32")}
        shapes = {"data": (len(FEATURES) if self._is_packed else 2, length), "labels": first.shapes["labels"]}
        super().__init__(loader.data_dir, files, fields, shapes, model.vocab_size)

    def samples(self, rows: Array, tables: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return all fields."""
        data, labels = tables["data"], tables["labels"]
        self.check(rows, FEATURES[INPUT_IDS], data[:, INPUT_IDS], self.token_limit, VOCAB_HINT)
        self.check(rows, FEATURES[ATTENTION], data[:, ATTENTION], 2, None)
        self.check(rows, "labels", labels[:, LABELS], self.token_limit, VOCAB_HINT, least=-(2**31))
        found = {FEATURES[feature]: data[:, feature] for feature in (INPUT_IDS, ATTENTION)}
        if self._is_gathered:
            self.check(rows, "positions of labels", labels[:, PLACES], data.shape[2], None)
            self.check(rows, "the mask of labels", labels[:, COUNTS], 2, None)
            counts = labels[:, COUNTS] * (labels[:, LABELS] >= 0)
            found |= {"masked_lm_positions": labels[:, PLACES] * counts, "labels": labels[:, LABELS] * counts}
            found["mask"] = counts
        else:
            names = ("masked_lm_positions", "labels", "mask")
            made = allocate({name: self.fields[name] for name in names}, len(rows))
            for i, row in enumerate(rows.tolist()):
                path, number = self.place(row)
                sample = {name: array[i] for name, array in made.items()}
                gathered(f"{path}: sample {number:,}", labels[i, LABELS], self._most, sample)
            found |= made
        if self._is_packed:
            segments = self._segments(rows, data)
            found |= {"segments": segments, "position_ids": data[:, POSITION] * data[:, ATTENTION]}
        return found

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
            rule = "spans and positions must be those of sequences back to back"
            raise self.error(
                rows, wrong, lambda at: f"{rule}, got span {span[at]} at position id {position[at]},", PACKED_HINT
            )
        segments: Array = np.cumsum(begins, axis=1) * is_real
        return segments


def inspect_masks(path: Path) -> SampleFileInfo:
    """Check a file, all but the values of its samples, or raise DataError."""
    with inspected(path) as file:
        data, labels = (dataset_in(path, file, name, _HINT) for name in ("data", "labels"))
        fits = data.ndim == 3 and data.shape[1] >= 2 and data.shape[2] > 0
        names = f"the first two are {FEATURES[INPUT_IDS]} and {FEATURES[ATTENTION]}"
        check_table(path, "data", data, fits, "(samples, 2 or more, tokens)", names)
        count, length = len(data), data.shape[2]
        fits = labels.ndim == 3 and len(labels) == count and labels.shape[2] > 0
        fits = fits and (labels.shape[1] == 3 or labels.shape[1:] == (1, length))
        check_table(path, "labels", labels, fits, f"({count:,}, 3, predictions) or ({count:,}, 1, {length:,})")
        check_count(path, file, count)
        return SampleFileInfo(path, count, {"data": data.shape[1:], "labels": labels.shape[1:]})


def _predictions(file: SampleFileInfo) -> int | None:
    """M; None where there is a label for each token."""
    features, count = file.shapes["labels"]
    return count if features == 3 else None


def _told(file: SampleFileInfo) -> str:
    predictions = _predictions(file)
    labels = "a label for each" if predictions is None else f"{predictions:,} labels"
    return f"{file.sequence_length:,} tokens and {labels}"
