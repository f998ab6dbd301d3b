"""Several data sets as one, each with a share of the samples.

An epoch is long enough to see each sample of every data set with a share above 5 % at least once; samples of smaller
shares come several times, or in part. In order, data sets are interleaved at random, and the samples of each stay in
their order.

Source: `Mixture` in Cerebras Model Zoo 2.10.0, data/common/h5_map_dataset/readers.py, sample for sample.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Dataset, Field, allocate

_LARGE_SHARE = 0.05


class MixtureDataset:
    """Samples of several data sets of the same fields; closes them.

    Args:
        datasets: at least one
        weights: shares of the data sets, all above 0; their sum is taken as the whole
        seed: of the order in which they are interleaved; None where samples are shuffled anyway

    Raises:
        DataError: samples differ in length.
    """

    def __init__(self, datasets: Sequence[Dataset], weights: Sequence[float], seed: int | None) -> None:
        first = datasets[0]
        for dataset in datasets:
            if dict(dataset.fields) != dict(first.fields):
                raise DataError(
                    f"mixture: samples must be alike, got {first.describe()}; and {dataset.describe()}",
                    "max_sequence_length cuts those that are too long",
                )
        self.fields: Mapping[str, Field] = first.fields
        self._datasets = tuple(datasets)
        shares = [weight / sum(weights) for weight in weights]
        large = [share > _LARGE_SHARE for share in shares]
        length = max(
            dataset.sample_count / share
            for dataset, share, counts in zip(datasets, shares, large, strict=True)
            if counts or not any(large)
        )
        self._edges = np.cumsum([0, *(int(length * share) for share in shares)])
        self.sample_count = int(self._edges[-1])
        self._order = None if seed is None else self._interleaved(seed)

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        shares = np.diff(self._edges) / self.sample_count
        parts = (f"{share:.1%} of {dataset.describe()}" for share, dataset in zip(shares, self._datasets, strict=True))
        return f"{self.sample_count:,} samples: {'; '.join(parts)}"

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        places = np.asarray(indices, np.int64)
        if self._order is not None:
            places = self._order[places]
        parts = np.searchsorted(self._edges, places, side="right") - 1
        for part in np.unique(parts).tolist():
            dataset, rows = self._datasets[part], np.flatnonzero(parts == part)
            inner = allocate(self.fields, len(rows))
            dataset.read((places[rows] - self._edges[part]) % dataset.sample_count, inner, epoch)
            for name, values in inner.items():
                out[name][rows] = values

    def close(self) -> None:
        """Close all data sets. May be called twice."""
        for dataset in self._datasets:
            dataset.close()

    def _interleaved(self, seed: int) -> Array:
        """Return (samples,) int64: places in a random order, ascending within each data set."""
        order = np.arange(self.sample_count)
        np.random.default_rng(seed).shuffle(order)
        parts = np.searchsorted(self._edges, order, side="right") - 1
        order[np.argsort(parts, kind="stable")] = np.arange(self.sample_count)
        return order
