"""Language-model samples in the vendor's HDF5 layout: read, and written.

A folder of files `*.h5`; each holds a dataset `data` (n, 3, S) int32 = input_ids, attention_mask, labels, and
the file attribute `n_examples`. The attention mask is really the loss mask: 1 where the label counts. Where a sample
is several texts, attention_span and position_ids follow, (n, 5, S): a token at position p of its own text, which goes
on for r tokens, has position id p and attention span r - 1 - p. It is seen from there on by that many tokens, by itself
and, where attention looks back, by the p before it. Padding has zeros.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing and data/common/h5_map_dataset; packed texts:
vsl_pretraining_token_generator.py of the former, `create_vsl_mask` in common/utils/model/transformer_utils.py.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from cstool.foundation.atomic_file import sync_folder
from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field
from cstool.training.data.hdf5_rows import (
    Hdf5Dataset,
    SampleFileInfo,
    check_count,
    check_table,
    dataset_in,
    inspected,
    open_hdf5,
    sample_files,
)
from cstool.training.data.vocabulary import VOCAB_HINT

INPUT_IDS, MASK, LABELS, SPAN, POSITION = range(5)
FEATURES = ("input_ids", "attention_mask", "labels")
PACKED_FEATURES = (*FEATURES, "attention_span", "position_ids")
PACKED_HINT = "use_vsl: false takes samples that are not packed"
_PREPARE_HINT = "`cstool data prepare text --output DIR --sequence_length N` makes a data set from any files"


class Hdf5TextDataset(Hdf5Dataset):
    """Samples of text: `input_ids`, `mask` and `labels`, 0 where they do not count. Built by `open_hdf5_text`."""

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
        fields = {name: Field((sequence_length,), dtype) for name, dtype in dtypes.items()}
        self._is_packed = is_packed
        shape = len(PACKED_FEATURES if is_packed else FEATURES), sequence_length
        super().__init__(folders, files, fields, {"data": shape}, vocab_size)

    def samples(self, rows: Array, tables: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return all fields."""
        data = tables["data"]
        data[:, LABELS] *= data[:, MASK] == 1
        for feature in (INPUT_IDS, MASK, LABELS):
            limit, hint = (2, None) if feature == MASK else (self.token_limit, VOCAB_HINT)
            self.check(rows, FEATURES[feature], data[:, feature], limit, hint)
        found = {"input_ids": data[:, INPUT_IDS], "mask": data[:, MASK], "labels": data[:, LABELS]}
        if self._is_packed:
            found |= {"segments": self._segments(data, rows), "position_ids": data[:, POSITION]}
        return found

    def _segments(self, data: Array, rows: Array) -> Array:
        """Return (n, S): number of each token's text in its sample, or raise DataError."""
        spans, positions = data[:, SPAN], data[:, POSITION]
        # A cut sample ends where it is cut.
        segments, wrong = text_numbers(positions, np.minimum(spans, np.arange(data.shape[2])[::-1]))
        if wrong.any():
            rule = "spans and positions must be those of texts back to back"
            raise self.error(
                rows, wrong, lambda at: f"{rule}, got span {spans[at]} at position id {positions[at]},", PACKED_HINT
            )
        return segments


def text_numbers(positions: Array, spans: Array) -> tuple[Array, Array]:
    """Number each token by its text in its sample.

    Args:
        positions, spans: (n, S) int32

    Returns:
        (n, S) int32, counted from 1, and (n, S) bool, where spans and positions are none of texts back to back
    """
    begins = positions == 0
    wrong = np.zeros(begins.shape, bool)
    wrong[:, 0] = ~begins[:, 0]
    wrong[:, 1:] |= ~begins[:, 1:] & (positions[:, 1:] != positions[:, :-1] + 1)
    wrong[:, 1:] |= ~begins[:, 1:] & (spans[:, 1:] != spans[:, :-1] - 1)
    ends = np.ones_like(begins)
    ends[:, :-1] = begins[:, 1:]
    wrong |= ends != (spans == 0)
    numbers: Array = np.cumsum(begins, axis=1, dtype=np.int32)
    return numbers, wrong


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
                PACKED_HINT,
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
    with inspected(path) as file:
        data = dataset_in(path, file, "data", _PREPARE_HINT)
        fits = data.ndim == 3 and data.shape[1] in (3, 5) and data.shape[2] > 0
        check_table(path, "data", data, fits, "(samples, 3, tokens)", f"the three are {', '.join(FEATURES)}")
        check_count(path, file, len(data))
        return SampleFileInfo(path, len(data), {"data": data.shape[1:]})
