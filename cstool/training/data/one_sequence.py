"""Samples of one sequence each, beside others that are several: with the fields that these have."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from cstool.training.data.dataset import Array, Dataset, Field


class OneSequenceDataset:
    """A data set of text whose samples say that they are one sequence: `segments`, and `position_ids`.

    Args:
        dataset: of text, masked or not; closed with this one
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        field = dataset.fields["input_ids"]
        self.fields: Mapping[str, Field] = MappingProxyType(
            {**dataset.fields, "segments": field, "position_ids": field}
        )

    @property
    def sample_count(self) -> int:
        """Number of samples."""
        return self._dataset.sample_count

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return self._dataset.describe()

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        self._dataset.read(indices, {name: out[name] for name in self._dataset.fields}, epoch)
        is_real = out.get("attention_mask", np.ones_like(out["segments"]))
        out["segments"][...] = is_real
        out["position_ids"][...] = np.arange(is_real.shape[1]) * is_real

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._dataset.close()
