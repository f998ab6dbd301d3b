"""Language-model samples in the vendor's HDF5 layout: read, and written.

A folder of files `*.h5`; each holds a dataset `data` (n, 3, S) int32 = input_ids, attention_mask, labels, and
the file attribute `n_examples`. The attention mask is really the loss mask: 1 where the label counts. Where a sample
is several texts, attention_span and position_ids follow, (n, 5, S), see `packed_texts`.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing and data/common/h5_map_dataset.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import h5py
import numpy as np

from cstool.foundation.atomic_file import sync_folder
from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field, described
from cstool.training.data.hdf5_rows import (
    Hdf5Rows,
    check_count,
    check_numbers,
    dataset_in,
    inspected,
    open_hdf5,
    sample_files,
)
from cstool.training.data.packed_texts import text_numbers

INPUT_IDS, MASK, LABELS, SPAN, POSITION = range(5)
FEATURES = ("input_ids", "attention_mask", "labels")
PACKED_FEATURES = (*FEATURES, "attention_span", "position_ids")
_TOKEN_LIMIT = 2**31

_PREPARE_HINT = "`cstool data prepare text --output DIR --sequence_length N` makes a data set from any files"


@dataclass(frozen=True)
class SampleFileInfo:
    """The layout of a file of samples."""

    path: Path
    sample_count: int
    sequence_length: int
    features: int = 3


class Hdf5TextDataset:
    """Samples of checked files, in the order of the files. Built by `open_hdf5_text`."""

    def __init__(
        self,
        folders: Sequence[Path],
        files: Sequence[SampleFileInfo],
        sequence_length: int,
        vocab_size: int | None,
        *,
        is_packed: bool = False,
    ) -> None:
        dtypes = {"input_ids": "int32", "mask": "float32", "labels": "int32"}
        if is_packed:
            dtypes |= {"segments": "int32", "position_ids": "int32"}
        self.fields: Mapping[str, Field] = MappingProxyType(
            {name: Field((sequence_length,), dtype) for name, dtype in dtypes.items()}
        )
        self._is_packed = is_packed
        self._folders = tuple(folders)
        self._rows = Hdf5Rows([file.path for file in files], [file.sample_count for file in files])
        self.sample_count = self._rows.count
        self._sequence_length = sequence_length
        self._token_limit = _TOKEN_LIMIT if vocab_size is None else vocab_size

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return described(self._folders, self)

    def read(self, indices: Array, out: Mapping[str, Array], _epoch: int = 0, /) -> None:
        """Fill `input_ids`, `mask` and `labels`, 0 where they do not count; see `Dataset.read`."""
        order = np.argsort(indices, kind="stable")
        rows = indices[order]
        if len(rows) == 0:
            return
        features = len(PACKED_FEATURES if self._is_packed else FEATURES)
        samples = np.empty((len(rows), features, self._sequence_length), np.int32)
        self._rows.read(rows, {"data": samples})
        samples[:, LABELS] *= samples[:, MASK] == 1
        for feature, limit in ((INPUT_IDS, self._token_limit), (MASK, 2), (LABELS, self._token_limit)):
            self._check_range(samples, feature, limit, rows)
        out["input_ids"][order] = samples[:, INPUT_IDS]
        out["mask"][order] = samples[:, MASK]
        out["labels"][order] = samples[:, LABELS]
        if self._is_packed:
            out["segments"][order] = self._segments(samples, rows)
            out["position_ids"][order] = samples[:, POSITION]

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._rows.close()

    def _segments(self, samples: Array, rows: Array) -> Array:
        """Return (n, S): number of each token's text in its sample, or raise DataError."""
        # A cut sample ends where it is cut.
        spans = np.minimum(samples[:, SPAN], self._sequence_length - 1 - np.arange(self._sequence_length))
        segments, wrong = text_numbers(samples[:, POSITION], spans)
        if wrong.any():
            i, position = (int(found) for found in np.argwhere(wrong)[0])
            path, row = self._rows.place(int(rows[i]))
            raise DataError(
                f"{path}: spans and positions must be those of texts back to back, got span "
                f"{samples[i, SPAN, position]} at position id {samples[i, POSITION, position]}, in sample {row:,} at "
                f"position {position:,}",
                "use_vsl: false takes samples that are not packed",
            )
        return segments

    def _check_range(self, samples: Array, feature: int, limit: int, rows: Array) -> None:
        values = samples[:, feature]
        if values.min() >= 0 and values.max() < limit:
            return
        i, position = (int(found) for found in np.argwhere((values < 0) | (values >= limit))[0])
        path, row = self._rows.place(int(rows[i]))
        raise DataError(
            f"{path}: {FEATURES[feature]} must be in [0, {limit}), "
            f"got {values[i, position]} in sample {row:,} at position {position:,}",
            None if feature == MASK else "vocab_size of the model must be that of the data set",
        )


def open_hdf5_text(
    folders: Sequence[Path],
    *,
    max_sequence_length: int | None = None,
    vocab_size: int | None = None,
    tried: str = "",
    is_packed: bool = False,
) -> Hdf5TextDataset:
    """Open a language-model data set and check its files, all but the values of the samples.

    Args:
        folders: each with files `*.h5`, read in the order of their names
        max_sequence_length: tokens that a sample is cut to; None for the length of the files
        vocab_size: token ids must be below it, checked as they are read; None for no limit
        tried: all places where the folders were looked for, for messages
        is_packed: whether samples are several texts that do not see each other

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    files = [inspect_file(path) for folder in folders for path in sample_files(folder, tried, _PREPARE_HINT)]
    length = files[0].sequence_length
    for file in files:
        if is_packed and file.features != len(PACKED_FEATURES):
            raise DataError(
                f"{file.path}: samples must have {', '.join(PACKED_FEATURES)} for use_vsl: true, got "
                f"{file.features} features",
                "use_vsl: false takes samples that are not packed",
            )
        if file.sequence_length != length:
            raise DataError(
                f"{file.path}: samples must have {length:,} tokens, as in {files[0].path}, got "
                f"{file.sequence_length:,}",
                "keep samples of different lengths in different folders, and use one of them",
            )
    if max_sequence_length is not None and max_sequence_length > length:
        raise DataError(
            f"{files[0].path}: samples must have at least max_sequence_length ({max_sequence_length:,}) tokens, "
            f"got {length:,}",
            f"set max_sequence_length to {length}, or prepare the data with --sequence_length {max_sequence_length}",
        )
    return Hdf5TextDataset(folders, files, max_sequence_length or length, vocab_size, is_packed=is_packed)


def write_hdf5_text(
    path: Path, chunks: Iterable[Array], sample_count: int, sequence_length: int, features: int = len(FEATURES)
) -> None:
    """Write a file of the layout, or nothing: to a temporary file first, then renamed.

    Args:
        path: of the file
        chunks: samples (n, features, S) int32, in order
        sample_count: of all chunks together, at least 1
        sequence_length: S, at least 1
        features: of a sample

    Raises:
        ValueError: the chunks have another shape or number of samples.
        OSError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        offset = _lay_out(partial, (sample_count, features, sequence_length))
        # Samples do not go through the HDF5 library: it may crash on a full disk instead of raising OSError.
        with partial.open("r+b") as stream:
            stream.seek(offset)
            written = 0
            for chunk in chunks:
                if chunk.dtype != np.int32 or chunk.shape[1:] != (features, sequence_length):
                    form = f"(n, {features}, {sequence_length}) int32"
                    raise ValueError(f"chunks must be {form}, got {chunk.shape} {chunk.dtype}")
                written += len(chunk)
                if written > sample_count:
                    break
                stream.write(np.ascontiguousarray(chunk, "<i4").data)
            if written != sample_count:
                raise ValueError(f"{sample_count} samples were announced, got {written}")
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def holds_samples(path: Path, sample_count: int, sequence_length: int) -> bool:
    """Tell whether a file of the layout is there, whole, with the right number of samples of S tokens."""
    try:
        file = inspect_file(path)
        with open_hdf5(path) as opened:
            end_bytes = opened["data"].id.get_offset() + opened["data"].id.get_storage_size()
    except (DataError, OSError):
        return False
    return (file.sample_count, file.sequence_length, end_bytes) == (
        sample_count,
        sequence_length,
        path.stat().st_size,
    )


def _lay_out(path: Path, shape: tuple[int, int, int]) -> int:
    """Create a file with one contiguous, unwritten dataset; return where its samples begin [bytes]."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    # Without it the creation time is in the file, and the same data has other bytes each time.
    properties.set_obj_track_times(False)
    with open_hdf5(path, "w") as file:
        file.attrs["n_examples"] = shape[0]
        space = h5py.h5s.create_simple(shape)
        dataset = h5py.h5d.create(file.id, b"data", h5py.h5t.STD_I32LE, space, dcpl=properties)
        return int(dataset.get_offset())


def inspect_file(path: Path) -> SampleFileInfo:
    """Check a file, all but the values of its samples, or raise DataError."""

    def inspect(file: h5py.File) -> SampleFileInfo:
        data = dataset_in(path, file, "data", _PREPARE_HINT)
        if data.ndim != 3 or data.shape[1] not in (3, 5) or data.shape[2] == 0:
            raise DataError(
                f'{path}: dataset "data" must have the shape (samples, 3, tokens), got {data.shape}',
                f"the three are {', '.join(FEATURES)}",
            )
        check_numbers(path, data, "data")
        check_count(path, file, len(data))
        return SampleFileInfo(path, len(data), data.shape[2], data.shape[1])

    return inspected(path, inspect)
