"""Kinds of HDF5 data sets, recognized by the arrays in their files, and fields that mark tokens that count."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from cstool.foundation.errors import DataError
from cstool.model.params import DataloaderParams, DprLoaderParams, Hdf5MasksParams, LabelledParams, PreferencesParams
from cstool.training.data import preferences
from cstool.training.data.dataset import Dataset, ModelSize, section
from cstool.training.data.hdf5_contexts import Hdf5ContextsDataset
from cstool.training.data.hdf5_masks import Hdf5MasksDataset
from cstool.training.data.hdf5_rows import inspected, is_sample_file
from cstool.training.data.hdf5_text import open_hdf5_text
from cstool.training.data.preferences import LabelledDataset, PreferenceDataset


@dataclass(frozen=True)
class SampleKind:
    """A kind of data set.

    Args:
        name: for people to read
        open: (folders) -> their data set
        first: the field with the tokens that a sample begins with
        counted: fields that are not 0 where a token counts
        has_prompts: whether some tokens that do not count are prompts, not padding
        open_file: (path, vocab_size) -> the data set of one file, for its values to be checked; None for text,
            which is looked at more closely
    """

    name: str
    open: Callable[[Sequence[Path]], Dataset]
    first: str
    counted: Sequence[str]
    has_prompts: bool = False
    open_file: Callable[[Path, int | None], Dataset] | None = None


def _kind_of(name: str, dataset: Any, loader: type[DataloaderParams], first: str, **more: Any) -> SampleKind:
    """Return a kind whose data set opens itself by a section of a dataloader."""
    return SampleKind(
        name,
        lambda folders: dataset(section(loader, folders)),
        first,
        open_file=lambda path, vocab_size: dataset(section(loader, [path.parent]), ModelSize(vocab_size), [path]),
        **more,
    )


TEXT = SampleKind("HDF5 text", open_hdf5_text, "input_ids", ["mask"])
CONVERSATIONS = SampleKind("HDF5 of conversations", open_hdf5_text, "input_ids", ["mask"], has_prompts=True)
MASKS = _kind_of("HDF5 with masks", Hdf5MasksDataset, Hdf5MasksParams, "input_ids", counted=["attention_mask"])
PREFERENCES = _kind_of(
    "HDF5 of preferences", PreferenceDataset, PreferencesParams, "input_ids", counted=["label_mask"], has_prompts=True
)
LABELLED = _kind_of(
    "HDF5 of labelled answers", LabelledDataset, LabelledParams, "input_ids", counted=["label_mask"], has_prompts=True
)
CONTEXTS = _kind_of(
    "HDF5 of questions with contexts",
    Hdf5ContextsDataset,
    DprLoaderParams,
    "questions_input_ids",
    counted=["questions_attention_mask", "ctx_attention_mask"],
)
SAMPLE_KINDS = {kind.name: kind for kind in (TEXT, CONVERSATIONS, MASKS, PREFERENCES, LABELLED, CONTEXTS)}
"""by name"""
_AXES_OF_CONTEXTS = 4


def kind_of_samples(folder: Path) -> str:
    """Return the name of the kind of the files in a folder: plain text where nothing says otherwise."""
    first = min(entry for entry in folder.iterdir() if is_sample_file(entry.name))
    try:
        with inspected(first) as file:
            return _kind(file)
    except DataError:
        return TEXT.name


def _kind(file: h5py.File) -> str:
    if "labels" in file:
        return MASKS.name
    shapes = [_shape(file, name) for name in ("data", "data_0", "data_1")]
    if shapes[0][1:2] == (len(preferences.FEATURES),):
        return PREFERENCES.name
    if shapes[0][1:2] == (len(preferences.FEATURES_OF_LABELLED),):
        return LABELLED.name
    return CONTEXTS.name if _AXES_OF_CONTEXTS in map(len, shapes[1:]) else TEXT.name


def _shape(file: h5py.File, name: str) -> tuple[int, ...]:
    """The shape of a dataset that is in the file itself; () where there is none."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        return ()
    found: tuple[int, ...] = getattr(file[name], "shape", ())
    return found
