"""What the tests of the data sets share."""

import gzip
import multiprocessing
import pickle
import struct
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.foundation.errors import DataError
from cstool.training.data import workers


@pytest.fixture
def error_of(tmp_path) -> Callable[..., str]:
    """Return the whole text of the DataError that a call raises, with the folder of the test written as DIR."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
        with pytest.raises(DataError) as raised:
            function(*args, **kwargs)
        return str(raised.value).replace(str(tmp_path), "DIR")

    return call


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return where a data set is made."""
    return tmp_path / "made"


@pytest.fixture
def quick_processes(monkeypatch) -> None:
    """Fork processes, which would else import everything anew; what they are given is pickled all the same."""

    def pool(count: int, _context: Any, begin: Callable[..., None], given: tuple[Any, ...]) -> ProcessPoolExecutor:
        given = pickle.loads(pickle.dumps(given))
        return ProcessPoolExecutor(count, multiprocessing.get_context("fork"), begin, given)

    monkeypatch.setattr(workers, "ProcessPoolExecutor", pool)


class MnistFolder:
    """Writes pairs of IDX files with pixel values counting up, into `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, part: str, count: int, *, compress: bool = False) -> None:
        pixels = (np.arange(count * 784) % 251).astype(np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        self.file(f"{part}-images-idx3-ubyte", (0x0803, count, 28, 28), pixels.tobytes(), compress=compress)
        self.file(f"{part}-labels-idx1-ubyte", (0x0801, count), labels.tobytes(), compress=compress)

    def file(self, name: str, header: tuple[int, ...], content: bytes, *, compress: bool = False) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = struct.pack(f">{len(header)}I", *header) + content
        path = self.folder / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(whole) if compress else whole)


@pytest.fixture
def mnist(tmp_path) -> MnistFolder:
    """Write MNIST files to a folder: `mnist("train", 3)`."""
    return MnistFolder(tmp_path / "mnist")
