"""Pairs of a chosen and a rejected text in the vendor's HDF5 layout.

A folder of files `*.h5`; each holds a dataset `data` (n, 6, S) int32: input_ids, attention_mask and labels of the
chosen text, then the same of the rejected one, and the file attribute `n_examples`. An attention mask is really the
mask of the labels: 1 where one counts, which is in the answers, not in the prompts before them.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing/dpo_token_generator.py, data/nlp/dpo.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import PreferencesParams
from cstool.training.data.dataset import ANY_MODEL, Array, Field, ModelSize
from cstool.training.data.hdf5_rows import (
    Hdf5Dataset,
    SampleFileInfo,
    check_count,
    check_table,
    dataset_in,
    inspected,
    sample_paths,
)
from cstool.training.data.vocabulary import VOCAB_HINT

TEXTS = ("chosen", "rejected")
INPUT_IDS, MASK, LABELS = range(3)
PARTS = ("input_ids", "attention_mask", "labels")
FEATURES = tuple(f"{text}_{part}" for text in TEXTS for part in PARTS)
LABELLED = tuple(f"{text}_{part}" for text in ("answer", "other") for part in PARTS)
FEATURES_OF_LABELLED = (*LABELLED, "desirable")
_HINT = "its files hold data, as the vendor's preprocessing with mode: dpo writes them"


class PreferenceDataset(Hdf5Dataset):
    """Pairs: `input_ids`, `labels`, 0 where they do not count, `label_mask`, all (n, 2 S), and `mask`, ones."""

    features: Sequence[str] = FEATURES
    texts: Sequence[str] = TEXTS

    def __init__(self, loader: PreferencesParams, model: ModelSize = ANY_MODEL, paths: Sequence[Path] = ()) -> None:
        files = [inspect_pairs(path, self.features) for path in paths or sample_paths(loader, _HINT)]
        first, wanted = files[0], loader.max_sequence_length
        self.sequence_length = length = first.sequence_length
        for file in files:
            if file.sequence_length != length:
                raise DataError(
                    f"{file.path}: texts must have {length:,} tokens, as in {first.path}, got {file.sequence_length:,}",
                    "keep texts of different lengths in different folders, and use one of them",
                )
        if wanted not in (None, length):
            raise DataError(
                f"{first.path}: texts must have max_sequence_length ({wanted:,}) tokens, got {length:,}",
                "leave max_sequence_length out: pairs are not cut",
            )
        dtypes = {"input_ids": "int32", "label_mask": "float32", "labels": "int32"}
        fields = {name: Field((len(TEXTS) * length,), dtype) for name, dtype in dtypes.items()}
        fields["mask"] = Field((1,), "float32")
        fields |= {name: Field((1,), "float32") for name in self.features[len(FEATURES) :]}
        super().__init__(loader.data_dir, files, fields, {"data": (len(self.features), length)}, model.vocab_size)

    def told(self) -> str:
        """Return the kind of the samples, for `describe`."""
        return f"pairs of texts of {self.sequence_length:,} tokens"

    def samples(self, rows: Array, tables: Mapping[str, Array]) -> Mapping[str, Array | int]:
        """Return all fields."""
        pairs = np.ascontiguousarray(tables["data"][:, : len(FEATURES)])
        by_text = pairs.reshape(len(rows), len(TEXTS), len(PARTS), self.sequence_length)
        by_text[:, :, LABELS] *= by_text[:, :, MASK] == 1
        for row, name in enumerate(self.features[: len(FEATURES)]):
            limit, hint = (2, None) if row % len(PARTS) == MASK else (self.token_limit, VOCAB_HINT)
            self.check(rows, name, pairs[:, row], limit, hint)
        self._check_counts(by_text[:, :, MASK], rows)
        parts = (("input_ids", INPUT_IDS), ("label_mask", MASK), ("labels", LABELS))
        return {"mask": 1, **{name: by_text[:, :, part].reshape(len(rows), -1) for name, part in parts}}

    def _check_counts(self, masks: Array, rows: Array) -> None:
        """Check that each text has a label that counts: without one there is nothing to prefer."""
        counts = masks.any(axis=2)
        if counts.all():
            return
        i, text = (int(found) for found in np.argwhere(~counts)[0])
        path, row = self.place(int(rows[i]))
        raise DataError(
            f"{path}: {self.texts[text]}_attention_mask must be 1 where a label counts, got none in sample {row:,}",
            "its answer may have been cut off: leave the pair out, or make the texts longer",
        )


class LabelledDataset(PreferenceDataset):
    """Answers that are desirable or not: as pairs, each with a mismatched answer, and `desirable`, (n, 1).

    A file holds a seventh row of a sample, 1 throughout where its answer is desirable, else 0.
    """

    features = FEATURES_OF_LABELLED
    texts = ("answer", "other")

    def told(self) -> str:
        """Return the kind of the samples, for `describe`."""
        return f"answers with a label, texts of {self.sequence_length:,} tokens"

    def samples(self, rows: Array, tables: Mapping[str, Array]) -> Mapping[str, Array | int]:
        """Return all fields."""
        labels = tables["data"][:, len(FEATURES), :1]
        self.check(rows, "desirable", labels, 2, None)
        return {**super().samples(rows, tables), "desirable": labels}


def inspect_pairs(path: Path, features: Sequence[str] = FEATURES) -> SampleFileInfo:
    """Check a file, all but the values of its samples, or raise DataError."""
    with inspected(path) as file:
        data = dataset_in(path, file, "data", _HINT)
        fits = data.ndim == 3 and data.shape[1] == len(features) and data.shape[2] > 0
        form = f"(samples, {len(features)}, tokens)"
        check_table(path, "data", data, fits, form, f"the {len(features)} are {', '.join(features)}")
        check_count(path, file, len(data))
        return SampleFileInfo(path, len(data), {"data": data.shape[1:]})
