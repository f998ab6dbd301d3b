"""What a folder of data consists of, whoever made it, and the data set that a vendor's processor reads."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cstool.data.dataset import Dataset, names_in_folder
from cstool.data.hdf5_text import is_sample_file, open_hdf5_text
from cstool.data.mnist import MNIST_PARTS, open_mnist
from cstool.data.record import read_record
from cstool.data.tokenizer import BYTE_VALUES
from cstool.errors import DataError
from cstool.words import nearest

TEXT, PICTURES = "HDF5 text", "MNIST IDX"
_HINT = "give a folder of `cstool data prepare`, one with files *.h5, or one with the files of MNIST"


@dataclass(frozen=True)
class DataFolder:
    """A data set as it lies on disk.

    Args:
        path: its folder
        kind: `TEXT` or `PICTURES`
        parts: the folder of each part; that of the data set itself where it has no others
        record: how it was made, if this program did
    """

    path: Path
    kind: str
    parts: Mapping[str, Path]
    record: Mapping[str, Any] | None


def find_parts(folder: Path) -> DataFolder:
    """Find the parts of the data set in a folder: files *.h5, folders with such files, or files of MNIST.

    Raises:
        DataError: there is none.
    """
    names = names_in_folder(folder, "a data set", "", _HINT)
    record = read_record(folder)
    if record is not None and "sequence_length" in record:
        made = {name: folder / name for name, part in record["parts"].items() if part.get("samples")}
        return DataFolder(folder, TEXT, made, record)
    if (
        any(name.startswith(tuple(f"{part}-images-idx3" for part in MNIST_PARTS.values())) for name in names)
        or (folder / "MNIST" / "raw").is_dir()
    ):
        return DataFolder(folder, PICTURES, dict.fromkeys(MNIST_PARTS, folder), record)
    if any(is_sample_file(name) for name in names):
        return DataFolder(folder, TEXT, {os.path.basename(os.path.realpath(folder)): folder}, None)
    inside = {name: folder / name for name in names if _has_samples(folder / name)}
    if not inside:
        raise DataError(
            f"{folder}: must be a folder with a data set, got none among its entries ({len(names):,})", _HINT
        )
    return DataFolder(folder, TEXT, inside, None)


def vocab_size_of(record: Mapping[str, Any]) -> int:
    """Vocabulary size of a text data set, as its record says."""
    vocab_size: int = record["tokenizer"]["vocab_size"] if "tokenizer" in record else BYTE_VALUES
    return vocab_size


def _has_samples(folder: Path) -> bool:
    try:
        return not folder.name.startswith(".") and any(is_sample_file(entry.name) for entry in folder.iterdir())
    except OSError:
        return False


HDF5_TEXT_PROCESSORS = ("GptHDF5MapDataProcessor", "GptHDF5DataProcessor")
MNIST_PROCESSOR = "MNISTDataProcessor"


def open_dataset(
    data_processor: str,
    paths: Sequence[Path],
    *,
    split: str | None = None,
    max_sequence_length: int | None = None,
    vocab_size: int | None = None,
    tried: str = "",
) -> Dataset:
    """Open a data set and check its files, all but the values of the samples.

    Args:
        data_processor: the vendor's name of the kind of data
        paths: the folders
        split: "train" (the default) or "val", where one folder holds both
        max_sequence_length: tokens that a sample is cut to; None for the length of the files
        vocab_size: what tokens must be below, checked as they are read; None for no limit
        tried: all places where the folders were looked for, for messages

    Raises:
        DataError: the name is unknown, or the files are missing, damaged or do not fit.
    """
    if data_processor in HDF5_TEXT_PROCESSORS:
        return open_hdf5_text(paths, max_sequence_length=max_sequence_length, vocab_size=vocab_size, tried=tried)
    if data_processor == MNIST_PROCESSOR:
        return open_mnist(paths, split=split or "train", tried=tried)
    known = (*HDF5_TEXT_PROCESSORS, MNIST_PROCESSOR)
    near = nearest(data_processor, known)
    raise DataError(
        f"data_processor: must be one of {', '.join(known)}, got {data_processor}",
        None if near is None else f"{near} is the nearest",
    )


def open_part(folder: Path, part: str) -> Dataset:
    """Open one part of the data set of `find_parts`, or raise DataError."""
    found = find_parts(folder)
    if part not in found.parts:
        raise DataError(f"{folder}: must have a part {part}, has {', '.join(found.parts) or 'none'}")
    if found.kind == PICTURES:
        return open_mnist([folder], split=part)
    return open_hdf5_text([found.parts[part]])
