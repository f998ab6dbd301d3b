"""From the vendor's name of a data processor to a data set."""

from collections.abc import Sequence
from pathlib import Path

from cstool.data.dataset import Dataset
from cstool.data.hdf5_text import open_hdf5_text
from cstool.data.mnist import open_mnist
from cstool.data.parts import PICTURES, find_parts
from cstool.errors import DataError
from cstool.words import nearest

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
    """Open one part of the data set in a folder, whoever made it.

    Args:
        folder: see `find_parts`
        part: its name

    Raises:
        DataError: there is no such part, or its files are damaged
    """
    found = find_parts(folder)
    if part not in found.parts:
        raise DataError(f"{folder}: must have a part {part}, has {', '.join(found.parts) or 'none'}")
    if found.kind == PICTURES:
        return open_mnist([folder], split=part)
    return open_hdf5_text([found.parts[part]])
