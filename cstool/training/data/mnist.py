"""MNIST digits in IDX files, plain or gzip.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats".
"""

import gzip
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field, is_special, names_in_folder
from cstool.training.data.image_steps import ImageSteps

IMAGES_MAGIC, LABELS_MAGIC = 0x0803, 0x0801
SIDE = 28
CLASS_COUNT = 10

PIXEL_MEAN, PIXEL_STD = 0.1307, 0.3081
"""of pixel / 255 over the training images; Source: Cerebras Model Zoo 2.10.0, fc_mnist, MNISTDataProcessor"""

MNIST_PARTS = {"train": "train", "val": "t10k"}
"""part -> prefix of the names of its files"""

_CONTENT = "MNIST files such as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"
_HINT = "copy the four files of MNIST there, as they are published; `cstool data prepare digits` makes smaller ones"


class MnistDataset:
    """Digits (n, 784) uint8 and their classes (n,) uint8, held in memory. Built by `open_mnist`.

    Args:
        origin: where they come from, for `describe`
        pixels, labels: the bytes of the files
        files: that they were read from
        steps: that each goes through before its pixels are normalised; None for none
    """

    image_shape = (1, SIDE, SIDE)

    def __init__(
        self, origin: str, pixels: Array, labels: Array, files: Sequence[Path], steps: ImageSteps | None = None
    ) -> None:
        self.fields: Mapping[str, Field] = MappingProxyType(
            {"x": Field((SIDE * SIDE,), "float32"), "mask": Field((), "float32"), "labels": Field((), "int32")}
        )
        self.sample_count = len(labels)
        self.files = tuple(files)
        self._origin = origin
        self._pixels = pixels
        self._labels = labels
        self._steps = steps
        self._normalised = ((np.arange(256) / 255 - PIXEL_MEAN) / PIXEL_STD).astype(np.float32)

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return f"{self._origin}: {self.sample_count:,} samples"

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill `x` (n, 784) with normalised pixels, `labels` (n,) with classes, `mask` (n,) with 1."""
        pixels = self._pixels[indices]
        if self._steps is not None:
            for place, number in enumerate(indices.tolist()):
                pixels[place] = self._changed(self._steps, pixels[place], number, epoch)
        out["x"][...] = self._normalised[pixels]
        out["labels"][...] = self._labels[indices]
        out["mask"][...] = 1

    def close(self) -> None:
        """Do nothing: all is in memory."""

    def _changed(self, steps: ImageSteps, pixels: Array, number: int, epoch: int) -> Array:
        where = f"{self._origin}: image {number}"
        image = steps.pixels(pixels.reshape(SIDE, SIDE, 1), where, number, epoch)
        if image.shape[:2] != (SIDE, SIDE):
            height, width = image.shape[:2]
            raise DataError(f"{where}: must be {SIDE} x {SIDE} pixels after its transforms, is {height} x {width}")
        return image.reshape(-1)


def open_mnist(
    folders: Sequence[Path], *, split: str = "train", tried: str = "", steps: ImageSteps | None = None
) -> MnistDataset:
    """Read the digits of one part.

    A folder that holds one pair of files only serves both parts: the first 80 % are "train", the rest "val".

    Args:
        folders: one folder; the files may also lie in its MNIST/raw, where torchvision puts them
        split: "train" (files train-*) or "val" (files t10k-*)
        tried: all places where the folder was looked for, for messages
        steps: that each image goes through before its pixels are normalised; None for none

    Raises:
        DataError: files are missing, damaged or do not belong together.
    """
    if split not in MNIST_PARTS:
        raise DataError(f"split: must be train or val, got {split}")
    if len(folders) != 1:
        raise DataError(f"data_dir: must be one folder for MNIST, got {len(folders)}")
    folder, names = folders[0], names_in_folder(folders[0], _CONTENT, tried, _HINT)
    if "MNIST" in names and (folder / "MNIST" / "raw").is_dir():
        folder = folder / "MNIST" / "raw"
        names = names_in_folder(folder, _CONTENT, tried, _HINT)
    present = [part for part in MNIST_PARTS.values() if _file_of(part, "images-idx3", names)]
    if not present:
        raise DataError(
            f"{folder}: must be a folder with {_CONTENT}, got none among its entries ({len(names):,})", _HINT
        )
    if MNIST_PARTS[split] in present and len(present) == len(MNIST_PARTS):
        pixels, labels, files = _read_pair(folder, MNIST_PARTS[split], names)
        return MnistDataset(f"{folder} ({MNIST_PARTS[split]}-*)", pixels, labels, files, steps)
    pixels, labels, files = _read_pair(folder, present[0], names)
    if len(labels) < 2:
        raise DataError(f"{folder}: must hold at least two samples to split in train and val, got {len(labels)}")
    edge = max(1, len(labels) * 4 // 5)
    which, rows = ("first 80 %", slice(edge)) if split == "train" else ("last 20 %", slice(edge, None))
    origin = f"{folder} ({which} of {present[0]}-*, the only files there)"
    return MnistDataset(origin, pixels[rows], labels[rows], files, steps)


def _file_of(part: str, kind: str, names: Sequence[str]) -> str | None:
    plain = f"{part}-{kind}-ubyte"
    return next((name for name in (plain, f"{plain}.gz") if name in names), None)


def _read_pair(folder: Path, part: str, names: Sequence[str]) -> tuple[Array, Array, tuple[Path, Path]]:
    images_name, labels_name = (_file_of(part, kind, names) for kind in ("images-idx3", "labels-idx1"))
    if images_name is None or labels_name is None:
        missing = f"{part}-labels-idx1-ubyte"
        raise DataError(f"{folder}: must hold {missing} or {missing}.gz beside {images_name}, got neither", _HINT)
    images_path, labels_path = folder / images_name, folder / labels_name
    images, labels = _read_idx(images_path, IMAGES_MAGIC), _read_idx(labels_path, LABELS_MAGIC)
    if images.shape[1:] != (SIDE, SIDE):
        height, width = images.shape[1:]
        raise DataError(f"{images_path}: images must be {SIDE} x {SIDE} pixels, got {height} x {width}")
    if len(images) != len(labels):
        raise DataError(f"{labels_path}: must hold {len(images):,} labels, one for each image, got {len(labels):,}")
    if len(labels) == 0:
        raise DataError(f"{labels_path}: must hold at least one label, got 0")
    if labels.max() >= CLASS_COUNT:
        sample = int(np.argmax(labels >= CLASS_COUNT))
        raise DataError(f"{labels_path}: labels must be in [0, {CLASS_COUNT}), got {labels[sample]} in sample {sample}")
    return images.reshape(len(images), SIDE * SIDE), labels, (images_path, labels_path)


def _read_idx(path: Path, magic: int) -> Array:
    """Return the bytes of an IDX file in the shape that its header says."""
    content = _content(path)
    dimensions = magic & 0xFF
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes:
        raise DataError(f"{path}: header must have {header_bytes} bytes, got {len(content)}", "copy the file again")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content[:header_bytes])
    if found != magic:
        raise DataError(
            f"{path}: must begin with the magic number {magic:#010x}, got {found:#010x}", "it is not the file it claims"
        )
    size_bytes = int(np.prod(shape, dtype=object))
    if len(content) - header_bytes != size_bytes:
        raise DataError(
            f"{path}: must hold {size_bytes:,} bytes after its header, got {len(content) - header_bytes:,}",
            "it is truncated or damaged; copy it again",
        )
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def _content(path: Path) -> bytes:
    if is_special(path):
        raise DataError(f"{path}: must be a file of MNIST, got a pipe or a device", "copy the file again")
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: must be a whole gzip file, got a truncated or damaged one", "copy the file again"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
