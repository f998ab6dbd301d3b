"""CIFAR-10 and CIFAR-100 in their binary files: small photos of things, 32 x 32 pixels in three colours.

Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009, and the page of the data set,
section "Binary version". The version for Python is pickled, which runs code as it is read, and is not read here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, is_special, names_in_folder
from cstool.training.data.image_steps import ImageSteps
from cstool.training.data.images import ImageDataset

SIDE, CHANNELS = 32, 3
_PIXELS = CHANNELS * SIDE * SIDE


@dataclass(frozen=True)
class Kind:
    """One of the two.

    Args:
        folder: in which its archive has the files
        files: of each part
        label_bytes: before the pixels of an image; the last is its class
        classes: number of classes
    """

    name: str
    folder: str
    pickled: str
    files: dict[str, tuple[str, ...]]
    label_bytes: int
    classes: int


CIFAR10 = Kind(
    "CIFAR-10",
    "cifar-10-batches-bin",
    "cifar-10-batches-py",
    {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "val": ("test_batch.bin",)},
    1,
    10,
)
CIFAR100 = Kind(
    "CIFAR-100", "cifar-100-binary", "cifar-100-python", {"train": ("train.bin",), "val": ("test.bin",)}, 2, 100
)


class _Records:
    """Images of CIFAR's files, in memory; see `Images`."""

    def __init__(self, kind: Kind, files: Sequence[Path]) -> None:
        self.files = files
        records = [_records(kind, path) for path in files]
        self._edges = np.cumsum([0, *map(len, records)])
        content = np.concatenate(records)
        self.labels = content[:, kind.label_bytes - 1]
        self._pixels = content[:, kind.label_bytes :].reshape(-1, CHANNELS, SIDE, SIDE)
        if int(self.labels.max()) >= kind.classes:
            number = int(np.argmax(self.labels >= kind.classes))
            rule = f"classes must be in [0, {kind.classes}), got {self.labels[number]}"
            raise DataError(f"{self.where(number)}: {rule}", f"it is not a file of {kind.name}")

    def image(self, number: int) -> Array:
        """See `Images.image`."""
        found: Array = self._pixels[number].transpose(1, 2, 0)
        return found

    def where(self, number: int) -> str:
        """See `Images.where`."""
        file = int(np.searchsorted(self._edges, number, "right")) - 1
        return f"{self.files[file]}: image {number - self._edges[file]}"


def open_cifar(
    kind: Kind, folders: Sequence[Path], steps: ImageSteps, *, split: str, classes: int | None = None, tried: str = ""
) -> ImageDataset:
    """Open one part of CIFAR.

    Args:
        kind: `CIFAR10` or `CIFAR100`
        folders: one; the files may also lie in the folder that the archive has them in
        steps: that each image goes through
        split: "train", or "val" or "test", which is the same
        classes: number of classes of the model; None for no limit
        tried: all places where the folder was looked for, for messages

    Raises:
        DataError: files are missing or damaged
    """
    if len(folders) != 1:
        raise DataError(f"data_dir: must be one folder for {kind.name}, got {len(folders)}")
    wanted = kind.files["train" if split == "train" else "val"]
    content, folder = f"the files of {kind.name} such as {wanted[0]}", folders[0]
    hint = f"unpack the binary version of {kind.name} there"
    names = names_in_folder(folder, content, tried, hint)
    if kind.folder in names:
        folder = folder / kind.folder
        names = names_in_folder(folder, content, tried, hint)
    if missing := [name for name in wanted if name not in names]:
        if kind.pickled in names or "batches.meta" in names or "meta" in names:
            hint = f"the version for Python is Python code to run; take the binary version, {kind.folder}"
        raise DataError(f"{folder}: must hold {missing[0]}, which is not there", hint)
    return ImageDataset(f"{folder} ({wanted[0]})", _Records(kind, [folder / name for name in wanted]), steps, classes)


def _records(kind: Kind, path: Path) -> Array:
    """Return the records of a file, (n, bytes of one) uint8, or raise DataError."""
    if is_special(path):
        raise DataError(f"{path}: must be a file of {kind.name}, got a pipe or a device", "copy the file again")
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    size_bytes = kind.label_bytes + _PIXELS
    if not len(content) or len(content) % size_bytes:
        raise DataError(
            f"{path}: must hold images of {size_bytes:,} bytes each, got {len(content):,} bytes",
            "it is truncated or damaged, or of another kind; copy it again",
        )
    return content.reshape(-1, size_bytes)
