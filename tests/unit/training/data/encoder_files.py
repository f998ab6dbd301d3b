"""Small files of data sets of encoders."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from cstool.model.params import DataloaderParams
from cstool.model.params.paths import ResolvedPath
from cstool.training.data import allocate
from cstool.training.data.dataset import Dataset, ModelSize, section

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "on", "a", "mat", ".", "dog", "'")


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


def write_masks(path: Path, data: Any, labels: Any, **attributes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, values in (("data", data), ("labels", labels)):
            array = np.array(values, np.int32)
            file.create_dataset(name, data=array, chunks=(1, *array.shape[1:]), compression="gzip")
        file.attrs.update({"n_examples": len(data), **attributes})


def read(dataset: Dataset, indices: Sequence[int], epoch: int = 0) -> dict[str, Any]:
    out = allocate(dataset.fields, len(indices))
    dataset.read(np.array(indices, np.int64), out, epoch)
    return {name: array.tolist() for name, array in out.items()}


def shapes(dataset: Dataset) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (field.shape, field.dtype) for name, field in dataset.fields.items()}
