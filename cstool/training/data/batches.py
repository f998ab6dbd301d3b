"""The samples of a batch: a function of the batch number, the seed and the counts, and of nothing else."""

from __future__ import annotations

import numpy as np

from cstool.foundation.errors import DataError
from cstool.foundation.random_keys import generator
from cstool.training.data.dataset import Array


def batches_per_epoch(sample_count: int, batch_size: int, drop_last: bool, where: str = "batch_size") -> int:
    """Number of batches in one pass, or raise DataError, which names `where`, if there is not one."""
    count = sample_count // batch_size if drop_last else -(-sample_count // batch_size)
    if count == 0:
        hint = f"set batch_size to at most {sample_count}, or drop_last to false" if sample_count else None
        raise DataError(
            f"{where}: must be at most the number of samples ({sample_count:,}) to fill one batch, got {batch_size:,}",
            hint,
        )
    return count


class Sampler:
    """The order in which samples are read. Keeps the permutation of the last epoch asked for.

    Args:
        sample_count, batch_size: of the data set, and of a batch
        shuffle: whether each epoch has its own random order, of the `seed`
        drop_last: whether an incomplete last batch of an epoch is left out
        epoch_samples: how long an epoch is; None for all samples once. A shorter one has the first of its order. A
            longer one goes through all of them so often, the last time perhaps in part, and shuffles them together

    Raises:
        DataError: there is not one batch.
    """

    def __init__(
        self,
        sample_count: int,
        batch_size: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        epoch_samples: int | None = None,
    ) -> None:
        self.epoch_samples = sample_count if epoch_samples is None else epoch_samples
        self.batches_per_epoch = batches_per_epoch(self.epoch_samples, batch_size, drop_last)
        self.sample_count = sample_count
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self._epoch = -1
        self._order: Array = np.arange(self.epoch_samples) % sample_count

    def __reduce__(self) -> tuple[type[Sampler], tuple[int, int, bool, int, bool, int]]:
        # Another process makes the order anew: it is as long as the epoch.
        own = (self.sample_count, self.batch_size, self.shuffle, self.seed, self.drop_last, self.epoch_samples)
        return Sampler, own

    def epoch(self, batch_number: int) -> int:
        """Return the number of complete epochs before a batch."""
        return batch_number // self.batches_per_epoch

    def indices(self, batch_number: int) -> Array:
        """Return the samples of a batch, numbered from 0 over all epochs: (batch_size,) int64.

        There are fewer in the last batch of an epoch unless `drop_last`.
        """
        epoch, place = divmod(batch_number, self.batches_per_epoch)
        if self.shuffle and epoch != self._epoch:
            self._order = self._shuffled(epoch)
            self._epoch = epoch
        return self._order[place * self.batch_size : (place + 1) * self.batch_size].copy()

    def _shuffled(self, epoch: int) -> Array:
        """Return the samples of an epoch in its random order: (epoch_samples,) int64."""
        chance = generator(self.seed, f"shuffle/{epoch}")
        if self.epoch_samples <= self.sample_count:
            return chance.permutation(self.sample_count)[: self.epoch_samples]
        whole, rest = divmod(self.epoch_samples, self.sample_count)
        times = [np.arange(self.sample_count)] * whole
        return chance.permutation(np.concatenate([*times, chance.permutation(self.sample_count)[:rest]]))
