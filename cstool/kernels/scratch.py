"""The type of what lends kernels their scratch memory."""

from typing import Protocol

import numpy as np


class Scratch(Protocol):
    """Lend a contiguous array that is reused and never zeroed; the same name gives the same memory again."""

    def __call__(self, name: str, shape: tuple[int, ...], /) -> np.ndarray:
        """Return an array of the shape, its content unspecified."""
