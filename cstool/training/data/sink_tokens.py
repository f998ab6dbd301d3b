"""Tokens put into every sample for later ones to attend to: attention sinks.

Source: Xiao et al., "Efficient streaming language models with attention sinks", 2023; the vendor's data transform
`add_sink_tokens`, 2.10.
"""

from collections.abc import Mapping
from types import MappingProxyType

from cstool.training.data.dataset import Array, Dataset, Field, allocate


class SinkTokensDataset:
    """A text data set with a run of equal tokens put into each sample, whose loss does not count.

    Args:
        dataset: of `input_ids`, `labels` and `mask`; closed with this one
        token: the id to put in
        count: number of tokens to put in
        position: of the token before which they go, at most the length of a sample
        keep_length: cut the end of the samples off, so that they are as long as before
    """

    def __init__(
        self, dataset: Dataset, *, token: int, count: int, position: int = 0, keep_length: bool = False
    ) -> None:
        [length] = dataset.fields["labels"].shape
        self._dataset, self._token = dataset, token
        self._sinks = slice(position, position + count)
        longer = length if keep_length else length + count
        self.added_tokens = longer - length
        """tokens by which a sample is longer"""
        self.fields: Mapping[str, Field] = MappingProxyType(
            {name: Field((longer,), field.dtype) for name, field in dataset.fields.items()}
        )

    @property
    def sample_count(self) -> int:
        """Number of samples."""
        return self._dataset.sample_count

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        [length] = self.fields["labels"].shape
        count = self._sinks.stop - self._sinks.start
        return f"{self._dataset.describe()}, with {count:,} sink tokens in each: {length:,} tokens"

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill `input_ids`, `mask` and `labels`; see `Dataset.read`."""
        inner = allocate(self._dataset.fields, len(indices))
        self._dataset.read(indices, inner, epoch)
        start, stop = self._sinks.start, self._sinks.stop
        for name, values in inner.items():
            target = out[name]
            rest = max(target.shape[1] - stop, 0)
            target[:, :start] = values[:, : min(start, target.shape[1])]
            # Labels of sinks are masked: 0 like all labels that do not count.
            target[:, start:stop] = self._token if name == "input_ids" else 0
            target[:, stop:] = values[:, start : start + rest]

    def close(self) -> None:
        """Close all files. May be called twice."""
        self._dataset.close()
