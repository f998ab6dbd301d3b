"""The handwritten digits that come with scikit-learn, as files of MNIST: 1,797 pictures, where MNIST has 70,000.

Source: E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI Machine Learning Repository, 1998.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.foundation.random_keys import generator
from cstool.training.data.dataset import Array
from cstool.training.data.mnist import IMAGES_MAGIC, LABELS_MAGIC, MNIST_PARTS, SIDE
from cstool.training.data.preparation import json_digest, make_whole

_MOST = 16
"""value of the brightest pixel in scikit-learn's digits"""


@dataclass(frozen=True)
class DigitsSummary:
    """The data set that `prepare_digits` made or found: number of pictures of each part."""

    path: Path
    train: int
    val: int
    already_prepared: bool


def prepare_digits(output: Path, *, val_fraction: float = 0.2, seed: int = 1, overwrite: bool = False) -> DigitsSummary:
    """Make files of MNIST of scikit-learn's digits, scaled up from 8 x 8 pixels to 28 x 28.

    Args:
        output: a folder that does not exist, is empty, or was made by this program
        val_fraction: share of the pictures that is held out, in (0, 1)
        seed: of the choice of held-out pictures
        overwrite: whether a different data set made before is replaced

    Raises:
        DataError: scikit-learn is not installed, an argument is out of range, or the files cannot be written.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            "the digits come with the package scikit-learn, which is not installed",
            "pip install 'cstool[data]', or scikit-learn itself",
        ) from None
    images, labels = load_digits(return_X_y=True)
    held_out = round(len(labels) * val_fraction) if 0 < val_fraction < 1 else 0
    if not 0 < held_out < len(labels):
        raise DataError(
            f"val_fraction: must hold out some of the {len(labels):,} pictures but not all, got {val_fraction}"
        )
    output = Path(os.path.realpath(output))

    def make(partial: Path) -> dict[str, Any]:
        pixels = scale_up(images.reshape(-1, 8, 8) / _MOST)
        order = generator(seed, "held-out digits").permutation(len(labels))
        rows = {"val": np.sort(order[:held_out]), "train": np.sort(order[held_out:])}
        sizes_bytes = {}
        for part, chosen in rows.items():
            for kind, magic, content in (
                ("images-idx3", IMAGES_MAGIC, pixels[chosen]),
                ("labels-idx1", LABELS_MAGIC, labels[chosen].astype(np.uint8)),
            ):
                name = f"{MNIST_PARTS[part]}-{kind}-ubyte"
                header = struct.pack(f">{1 + content.ndim}I", magic, *content.shape)
                write_replacing(partial / name, header + content.tobytes())
                sizes_bytes[name] = (partial / name).stat().st_size
        parts = {part: {"samples": len(chosen)} for part, chosen in rows.items()}
        return {"files": sizes_bytes, "parts": parts, "seed": seed, "source": "scikit-learn"}

    _, was_there = make_whole(output, json_digest(["digits", 1, held_out, seed]), overwrite, make)
    return DigitsSummary(output, len(labels) - held_out, held_out, already_prepared=was_there)


def scale_up(images: Array) -> Array:
    """Return pictures (n, height, width) from 0 to 1 as (n, 28, 28) uint8, between pixels by straight lines."""
    down, across = (_weights(length) for length in images.shape[1:])
    scaled: Array = np.rint(255 * (down @ images @ across.T)).astype(np.uint8)
    return scaled


def _weights(length: int) -> Array:
    """Return (28, length): weights by which a line of pixels is resized to a line of MNIST."""
    places = np.clip((np.arange(SIDE) + 0.5) * length / SIDE - 0.5, 0, length - 1)
    weights: Array = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(length)))
    return weights
