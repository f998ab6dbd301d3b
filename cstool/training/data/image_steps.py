"""Transforms of an image before a model sees it: cut, turned over, resized, and made numbers.

Source: torchvision's transforms of these names, which the vendor applies; here random draws follow from sample numbers.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from cstool.foundation.errors import DataError
from cstool.foundation.random_keys import generator
from cstool.model.params import (
    CenterCropParams,
    NormalizeParams,
    RandomCropParams,
    RandomFlipParams,
    RandomResizedCropParams,
    ResizeParams,
    TransformParams,
)
from cstool.training.data.dataset import Array

_TRIES = 10
"""tries to find a part of some area and ratio that fits into an image"""
_RESAMPLING = {name.lower(): Image.Resampling[name] for name in Image.Resampling.__members__}

Size = int | tuple[int, int]
_Step = Callable[[Array, np.random.Generator], Array]
"""(height, width, channels) uint8, and a generator of random numbers -> another such image"""


class ImageSteps:
    """The transforms of a data set, in order.

    Args:
        transforms: checked
        seed: of the random draws; the number of the sample and the epoch go in, too
    """

    def __init__(self, transforms: Sequence[TransformParams], seed: int) -> None:
        self._seed = seed
        self._steps = [step for transform in transforms if (step := _step(transform)) is not None]
        normalize = [transform for transform in transforms if isinstance(transform, NormalizeParams)]
        self._means_and_deviations = [(np.array(each.mean), np.array(each.std)) for each in normalize]

    def pixels(self, image: Array, where: str, number: int, epoch: int) -> Array:
        """Return an image (height, width, channels) uint8 after all steps but the last, which make numbers.

        Raises:
            DataError: it is too small for a crop
        """
        draws = generator(self._seed, f"transforms of sample {number} in epoch {epoch}")
        try:
            for step in self._steps:
                image = step(image, draws)
        except ValueError as error:
            raise DataError(f"{where}: {error}") from None
        return image

    def numbers(self, image: Array, where: str) -> Array:
        """Return a (height, width, channels) uint8 image as (channels, height, width) float32.

        Raises:
            DataError: it has not one channel for each mean
        """
        made = image.transpose(2, 0, 1) / 255
        for mean, deviation in self._means_and_deviations:
            if len(mean) not in (1, len(made)):
                raise DataError(
                    f"{where}: must have as many channels as normalize has means ({len(mean)}), has {len(made)}"
                )
            made = (made - mean[:, None, None]) / deviation[:, None, None]
        found: Array = made.astype(np.float32)
        return found


def _step(transform: TransformParams) -> _Step | None:
    """Return the function of a transform on the pixels of an image; None where it only makes numbers of them."""
    match transform:
        case ResizeParams():
            return lambda image, _: resized(image, _longer(image, transform.size), transform.interpolation)
        case CenterCropParams():
            return lambda image, _: _center(image, _sides(transform.size))
        case RandomCropParams():
            return lambda image, draws: _random_crop(image, transform, draws)
        case RandomResizedCropParams():
            return lambda image, draws: _random_resized_crop(image, transform, draws)
        case RandomFlipParams():
            axis = 1 if transform.name == "random_horizontal_flip" else 0
            return lambda image, draws: np.flip(image, axis) if draws.random() < transform.p else image
    return None


def resized(image: Array, size: tuple[int, int], interpolation: str) -> Array:
    """Return an image (height, width, 1 or 3) uint8 of another size."""
    if image.shape[:2] == size:
        return image
    flat = np.ascontiguousarray(image[:, :, 0] if image.shape[2] == 1 else image)
    made = Image.fromarray(flat).resize((size[1], size[0]), _RESAMPLING[interpolation])
    return np.asarray(made).reshape(*size, image.shape[2])


def _sides(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _longer(image: Array, size: Size) -> tuple[int, int]:
    """Return height and width of an image whose shorter side is resized to `size`, if that is one number."""
    if not isinstance(size, int):
        return size
    height, width = image.shape[:2]
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _padded(image: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    return np.pad(image, (rows, columns, (0, 0)))


def _center(image: Array, size: tuple[int, int]) -> Array:
    missing = [max(0, wanted - found) for wanted, found in zip(size, image.shape[:2], strict=True)]
    if any(missing):
        rows, columns = ((lacking // 2, (lacking + 1) // 2) for lacking in missing)
        image = _padded(image, rows, columns)
    top, left = (round((found - wanted) / 2) for found, wanted in zip(image.shape[:2], size, strict=True))
    return image[top : top + size[0], left : left + size[1]]


def _random_crop(image: Array, transform: RandomCropParams, draws: np.random.Generator) -> Array:
    height, width = _sides(transform.size)
    image = _padded(image, (transform.padding,) * 2, (transform.padding,) * 2)
    if transform.pad_if_needed:
        rows, columns = max(0, height - image.shape[0]), max(0, width - image.shape[1])
        image = _padded(image, (rows, rows), (columns, columns))
    return _part(image, height, width, draws, "random_crop")


def _part(image: Array, height: int, width: int, draws: np.random.Generator, name: str) -> Array:
    """Return a part of an image, wherever it is."""
    rows, columns = image.shape[0] - height, image.shape[1] - width
    if rows < 0 or columns < 0:
        got = f"{image.shape[0]} x {image.shape[1]}"
        raise ValueError(f"must be at least {height} x {width} pixels for {name}, got {got}")
    top, left = int(draws.integers(rows + 1)), int(draws.integers(columns + 1))
    return image[top : top + height, left : left + width]


def _random_resized_crop(image: Array, transform: RandomResizedCropParams, draws: np.random.Generator) -> Array:
    size, area = _sides(transform.size), image.shape[0] * image.shape[1]
    low, high = (math.log(ratio) for ratio in transform.ratio)
    for _ in range(_TRIES):
        target = area * draws.uniform(*transform.scale)
        ratio = math.exp(draws.uniform(low, high))
        height, width = round(math.sqrt(target / ratio)), round(math.sqrt(target * ratio))
        if 0 < height <= image.shape[0] and 0 < width <= image.shape[1]:
            part = _part(image, height, width, draws, transform.name)
            return resized(part, size, transform.interpolation)
    height, width = image.shape[:2]
    if width < transform.ratio[0] * height:
        height = round(width / transform.ratio[0])
    elif width > transform.ratio[1] * height:
        width = round(height * transform.ratio[1])
    return resized(_center(image, (height, width)), size, transform.interpolation)
