"""What a folder of data consists of, whoever made it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cstool.data.dataset import names_in_folder
from cstool.data.hdf5_text import is_sample_file
from cstool.data.mnist import MNIST_PARTS
from cstool.data.record import read_record
from cstool.data.tokenizer import BYTE_VALUES
from cstool.errors import DataError

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
    """Return what the data set in a folder consists of.

    Args:
        folder: with files *.h5, or folders with such files, or files of MNIST

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
    """Return what the tokens of a text data set are below, as its record says."""
    vocab_size: int = record["tokenizer"]["vocab_size"] if "tokenizer" in record else BYTE_VALUES
    return vocab_size


def _has_samples(folder: Path) -> bool:
    try:
        return not folder.name.startswith(".") and any(is_sample_file(entry.name) for entry in folder.iterdir())
    except OSError:
        return False
