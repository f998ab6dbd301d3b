"""The interface of every data set: fields of a fixed shape, and samples read by number."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params import DataloaderParams
from cstool.model.params.paths import ResolvedPath

Array = np.ndarray[Any, Any]
LoaderParams = TypeVar("LoaderParams", bound=DataloaderParams)

NO_LIMIT = 2**31
"""of the numbers of tokens"""

MASKS = ("mask", "sample_mask")
"""fields that are 0 where labels do not count; in places of a batch without a sample, all of them are 0"""


@dataclass(frozen=True)
class Field:
    """One array of a sample; `shape` is the shape in one sample, for example (S,)."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ModelSize:
    """Numbers of tokens and of classes of the model that a data set is for; None for no limit."""

    vocab_size: int | None = None
    classes: int | None = None

    @property
    def token_limit(self) -> int:
        """The numbers of tokens must be below it."""
        return NO_LIMIT if self.vocab_size is None else self.vocab_size


ANY_MODEL = ModelSize()


class Dataset(Protocol):
    """Samples by number. One thread at a time may read."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The arrays of a sample by name, always with `labels` and `mask`; `MASKS` are 0 where labels do not count."""

    @property
    def sample_count(self) -> int:
        """Number of samples, at least 1."""

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill arrays of `allocate` with the samples of (n,) indices in any order, repetitions allowed.

        Args:
            epoch: number of earlier passes over the data set; random draws differ between epochs

        Raises:
            DataError: a file is damaged, or holds values that the model cannot take.
        """

    def close(self) -> None:
        """Close all files. May be called twice."""


def described(folders: Sequence[Path], dataset: Dataset, told: str = "") -> str:
    """Return source and number of the samples, in one line of text; `told` is their kind, "" for samples of tokens."""
    more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    if not told:
        names = [name for name in ("input_ids", "decoder_input_ids") if name in dataset.fields]
        told = f"samples of {' and '.join(f'{dataset.fields[name].shape[0]:,}' for name in names)} tokens"
    return f"{folders[0]}{more}: {dataset.sample_count:,} {told}"


def section(kind: type[LoaderParams], folders: Sequence[Path], **keys: Any) -> LoaderParams:
    """Return the section of a dataloader that reads folders by these keys, with the vendor's defaults for others."""
    return kind.model_construct(folders=tuple(ResolvedPath(folder, ()) for folder in folders), **keys)


def allocate(fields: Mapping[str, Field], sample_count: int) -> dict[str, Array]:
    """Return an uninitialised array (sample_count, *shape) for each field."""
    return {name: np.empty((sample_count, *field.shape), field.dtype) for name, field in fields.items()}


def read_blocks(dataset: Dataset, block: int, count: int) -> Iterator[dict[str, Array]]:
    """Yield the first `count` samples, `block` at a time, in the same arrays again and again."""
    arrays = allocate(dataset.fields, min(block, count))
    for start in range(0, count, block):
        indices = np.arange(start, min(start + block, count))
        out = {name: array[: len(indices)] for name, array in arrays.items()}
        dataset.read(indices, out)
        yield out


def is_special(path: Path) -> bool:
    """Tell whether a path is a pipe, a socket or a device: a reader would wait for ever."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def names_in_folder(folder: Path, content: str, tried: str, hint: str) -> Sequence[str]:
    """Return the sorted names in a folder that is to hold a data set.

    Args:
        folder: the folder
        content: the files that it must hold, for messages
        tried: all places where it was looked for, for messages; may be empty
        hint: how to get the content

    Raises:
        DataError: it is missing, not a folder, or cannot be read.
    """
    rule = f"{folder}: must be a folder with {content}"
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except FileNotFoundError:
        places = f" (looked for it as {tried})" if tried not in ("", str(folder)) else ""
        raise DataError(f"{rule}, found nothing there{places}", hint) from None
    except NotADirectoryError:
        raise DataError(f"{rule}, got a file", f"give the folder that holds it: {folder.parent}") from None
    except OSError as error:
        raise DataError(f"{folder}: must be a readable folder, got: {error.strerror}") from None
