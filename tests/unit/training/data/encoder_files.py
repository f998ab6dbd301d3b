"""Small files of data sets of encoders."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

from cstool.model.params import DataloaderParams
from cstool.model.params.paths import ResolvedPath
from cstool.training.data import allocate, check_data
from cstool.training.data.dataset import Dataset, Field, ModelSize, section

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "on", "a", "mat", ".", "dog", "'")


OTHER_VOCABULARY = "hint: vocab_size of the model must be that of the data set"
NOT_PACKED = "hint: use_vsl: false takes samples that are not packed"
UNCUT = "hint: leave max_sequence_length out: masks that are drawn are not cut"
APART = "hint: keep samples of different lengths in different folders, and use one of them"


def write_vocabulary(folder: Path, words: Sequence[str] = WORDS) -> Path:
    """Write a vocabulary; return its path."""
    path = folder / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in words))
    return path


def write_rows(folder: Path, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """Write a file of CSV, and list it in the meta.dat of its folder, once; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    meta = folder / "meta.dat"
    others = (
        [line for line in meta.read_text().splitlines() if not line.startswith(f"{name} ")] if meta.exists() else []
    )
    meta.write_text("".join(f"{line}\n" for line in (*others, f"{name} {len(rows)}")))
    return folder / name


def opened_by(kind: type[Dataset], loader: type[DataloaderParams], folders: Sequence[Path], **keys: Any) -> Any:
    """Open the data set of a section of a dataloader, unchecked, for a model of a size, if that is among the keys."""
    size = ModelSize(*(keys.pop(name, None) for name in ("vocab_size", "classes")))
    found = {name: ResolvedPath(key, (key,)) if isinstance(key, Path) else key for name, key in keys.items()}
    return kind(section(loader, folders, **found), size)


def write_h5(path: Path, n_examples: int | None = None, *, compress: bool = False, **datasets: Any) -> Path:
    """Write a file of HDF5, perhaps with each sample compressed by itself, and its folder; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, data in datasets.items():
            if compress:
                file.create_dataset(name, data=data, chunks=(1, *data.shape[1:]), compression="gzip")
            else:
                file[name] = data
        if n_examples is not None:
            file.attrs["n_examples"] = n_examples
    return path


def write_masks(path: Path, data: Any, labels: Any) -> None:
    write_h5(path, len(data), compress=True, data=np.array(data, np.int32), labels=np.array(labels, np.int32))


def change(path: Path, place: tuple[int, ...], value: int, name: str = "data") -> None:
    """Change a number, or several, in a file of HDF5."""
    with h5py.File(path, "r+") as file:
        file[name][place] = value


def findings(folder: Path, **arguments: Any) -> list[str]:
    """Return what is wrong with a data set, with the folder of the test written as DIR."""
    top = str(arguments.pop("top", folder.parent))
    return [finding.replace(top, "DIR") for finding in check_data(folder, **arguments).findings]


def write_images(folder: Path, **sizes: tuple[int, int]) -> None:
    """Write images in colours, of these heights and widths."""
    rng = np.random.default_rng(3)
    for name, size in sizes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*size, 3)).astype(np.uint8)).save(folder / name)


class InMemory:
    """A data set of arrays, the first axis of which are samples."""

    def __init__(self, described: str, **arrays: np.ndarray[Any, Any]) -> None:
        self.described, self.arrays, self.closed = described, arrays, 0
        self.sample_count = len(next(iter(arrays.values())))
        self.fields = {name: Field(array.shape[1:], array.dtype.name) for name, array in arrays.items()}

    def describe(self) -> str:
        return self.described

    def read(self, indices: np.ndarray[Any, Any], out: dict[str, np.ndarray[Any, Any]], _epoch: int = 0, /) -> None:
        assert (indices >= 0).all()
        for name, array in self.arrays.items():
            out[name][:] = array[indices]

    def close(self) -> None:
        self.closed += 1


def read(dataset: Dataset, indices: Sequence[int], epoch: int = 0) -> dict[str, Any]:
    out = allocate(dataset.fields, len(indices))
    dataset.read(np.array(indices, np.int64), out, epoch)
    return {name: array.tolist() for name, array in out.items()}


def shapes(dataset: Dataset) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (field.shape, field.dtype) for name, field in dataset.fields.items()}
