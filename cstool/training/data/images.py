"""Images with a class each, read by number: of folders of files, of CIFAR's files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Field
from cstool.training.data.image_steps import ImageSteps

Shape = tuple[int, int, int]
"""channels, height, width"""


class Images(Protocol):
    """Images as they lie on disk."""

    labels: Array
    """(n,), classes from 0"""
    files: Sequence[Path]
    """that they are read from"""

    def image(self, number: int) -> Array:
        """Return an image, (height, width, channels) uint8, or raise DataError."""

    def where(self, number: int) -> str:
        """Return the place of an image, for messages."""


class ImageDataset:
    """Images as a model reads them: `x` (C * H * W,) float32 in that order, `labels`, `mask`.

    All must have the size of the first one, after the transforms.

    Args:
        origin: where they come from, for `describe`
        images: as they lie on disk
        steps: that each goes through
        classes: number of classes of the model; None for no limit

    Raises:
        DataError: the first image is damaged, or a class is none of the model's
    """

    def __init__(self, origin: str, images: Images, steps: ImageSteps, classes: int | None) -> None:
        check_classes(images, classes)
        self._origin, self._images, self._steps = origin, images, steps
        self.sample_count = len(images.labels)
        self.files = tuple(images.files)
        first = self._read(0, 0)
        self.image_shape: Shape = (first.shape[0], first.shape[1], first.shape[2])
        self.fields: Mapping[str, Field] = MappingProxyType(
            {"x": Field((first.size,), "float32"), "mask": Field((), "float32"), "labels": Field((), "int32")}
        )

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return f"{self._origin}: {self.sample_count:,} samples"

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill `x`, `labels` (n,) and `mask` (n,) with 1; see `Dataset.read`."""
        for place, number in enumerate(indices.tolist()):
            image = self._read(number, epoch)
            if image.shape != self.image_shape:
                raise DataError(
                    f"{self._images.where(number)}: must be {written(self.image_shape)}, as the first one of its data "
                    f"set, got {written(image.shape)}",
                    "the transform resize, of a height and a width, makes them alike",
                )
            out["x"][place] = image.reshape(-1)
        out["labels"][...] = self._images.labels[indices]
        out["mask"][...] = 1

    def close(self) -> None:
        """Do nothing: no file is left open."""

    def _read(self, number: int, epoch: int) -> Array:
        where = self._images.where(number)
        return self._steps.numbers(self._steps.pixels(self._images.image(number), where, number, epoch), where)


def check_classes(images: Images, classes: int | None) -> None:
    """Check that a model has the classes of images, or raise DataError that names the first that it lacks."""
    if classes is None or int(np.max(images.labels)) < classes:
        return
    number = int(np.argmax(images.labels >= classes))
    raise DataError(
        f"{images.where(number)}: classes must be in [0, {classes}), as the model has num_classes, got "
        f"{images.labels[number]}"
    )


def written(shape: Sequence[int]) -> str:
    """Return a shape as messages have it: 28 x 28 in 1 channel."""
    channels, height, width = shape
    return f"{height} x {width} in {channels} channel{'s' * (channels != 1)}"
