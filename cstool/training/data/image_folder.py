"""Images in files, in a folder for each class: ImageNet as its archives unpack."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, is_special, names_in_folder
from cstool.training.data.image_steps import ImageSteps
from cstool.training.data.images import ImageDataset

_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
PARTS = ("test", "train", "val")
_CONTENT = "folders train and val, in each a folder for every class with its images"
_HINT = "train/CLASS/NAME.JPEG and val/CLASS/NAME.JPEG are such files"


class ImageFiles:
    """Images of files; see `Images`.

    Args:
        files: an image each
        labels: the class of each
        classes: their names
    """

    def __init__(self, files: Sequence[Path], labels: Sequence[int], classes: Sequence[str]) -> None:
        self.files, self.classes = files, classes
        self.labels = np.array(labels, np.int32)

    def image(self, number: int) -> Array:
        """See `Images.image`."""
        path = self.files[number]
        if is_special(path):
            raise DataError(f"{path}: must be an image, got a pipe or a device")
        try:
            with Image.open(path) as image:
                return np.asarray(image.convert("RGB"))
        # A damaged file makes Pillow raise any of several errors.
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{path}: must be an image that can be read, got: {error}", "copy the file again") from None

    def where(self, number: int) -> str:
        """See `Images.where`."""
        return str(self.files[number])


def open_image_folder(
    folders: Sequence[Path], steps: ImageSteps, *, split: str, classes: int | None = None, tried: str = ""
) -> ImageDataset:
    """Open one part of a data set of image files. Classes are numbered in the order of the names of their folders.

    Args:
        folders: one, that has a folder for each part
        steps: that each image goes through
        split: name of the part: "train", "val" or "test"
        classes: number of classes of the model; None for no limit
        tried: all places where the folder was looked for, for messages

    Raises:
        DataError: there are none, or the first cannot be read
    """
    if len(folders) != 1:
        raise DataError(f"data_dir: must be one folder for images, got {len(folders)}")
    if split not in names_in_folder(folders[0], _CONTENT, tried, _HINT):
        raise DataError(f"{folders[0]}: must hold a folder {split}, which is not there", _HINT)
    part = folders[0] / split
    return ImageDataset(str(part), images_of_part(part), steps, classes)


def image_parts(folder: Path) -> list[str]:
    """Return the parts of a folder that have images of a class, in the order of their names."""
    return [part for part in PARTS if any(map(_has_images, _entries(folder / part)))]


def images_of_part(part: Path) -> ImageFiles:
    """Find the images of one part, or raise DataError where there are none."""
    found = [name for name in names_in_folder(part, "a folder for every class", "", _HINT) if (part / name).is_dir()]
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(found):
        names = names_in_folder(part / name, "images", "", _HINT)
        own = [part / name / file for file in names if file.lower().endswith(_ENDINGS)]
        if not own:
            raise DataError(
                f"{part / name}: must hold images of its class, got none among its entries ({len(names):,})"
            )
        files += own
        labels += [label] * len(own)
    if not files:
        raise DataError(f"{part}: must hold a folder for every class, got none", _HINT)
    return ImageFiles(files, labels, found)


def _has_images(folder: Path) -> bool:
    return any(entry.name.lower().endswith(_ENDINGS) for entry in _entries(folder))


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder; none where it is no folder, or cannot be read."""
    try:
        yield from folder.iterdir()
    except OSError:
        return
