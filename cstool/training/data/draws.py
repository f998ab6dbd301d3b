"""Random numbers of samples: they follow from (seed, purpose, number of the sample, epoch) alone."""

import numpy as np

from cstool.foundation.random_keys import key_of, philox4x32
from cstool.training.data.dataset import Array


def sample_draws(seed: int, purpose: str, samples: Array, length: int, epoch: int) -> Array:
    """Return (n, length, 4) uint32: four numbers for each place of some samples, the same in any order of reading.

    Args:
        seed: of the data set
        purpose: a stable name of the draws
        samples: (n,) int64, numbers of the samples
        length: places of a sample
        epoch: number of earlier draws for the same samples
    """
    counter = np.empty((len(samples), length, 4), np.uint32)
    counter[..., 0], counter[..., 1] = (samples & 0xFFFFFFFF)[:, None], (samples >> 32)[:, None]
    counter[..., 2], counter[..., 3] = epoch & 0xFFFFFFFF, np.arange(length)
    return philox4x32(counter.reshape(-1, 4), key_of(seed, purpose)).reshape(counter.shape)
