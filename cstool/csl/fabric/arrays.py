"""Arrays by name in a file `.npz`, and the errors that damaged files raise."""

import errno
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAMAGE = (AttributeError, EOFError, LookupError, OverflowError, RecursionError, StopIteration, TypeError, ValueError)
"""errors that damaged data raise"""


def read_file(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, or is a pipe or a device, where a read could wait for ever
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device")
    return path.read_bytes()


def read_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file.

    Raises:
        ValueError: it is none, or is damaged
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # of NumPy, zipfile, zlib, struct, tokenize: damaged bytes reach all of them
        raise ValueError(f"no arrays: {error}") from error


def check_numbers(numbers: NDArray[Any], shape: tuple[int, ...], below: int) -> None:
    """Check an array of int32 with numbers from -1 (none) up to, but not including, `below`.

    Raises:
        ValueError: its shape, its dtype or a number in it is wrong
    """
    if numbers.shape != shape or numbers.dtype != np.int32:
        raise ValueError(f"an array is {numbers.dtype}{numbers.shape}, not int32{shape}")
    if numbers.size and not (numbers.min() >= -1 and numbers.max() < below):
        raise ValueError("a number in an array is one of nothing")
