"""Data sets of text with the samples of another, but with more fields, or more tokens.

Source of attention sinks: Xiao et al., "Efficient streaming language models with attention sinks", 2023; the vendor's
data transform `add_sink_tokens`, 2.10.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from cstool.training.data.dataset import Array, Dataset, Field, allocate


class WrappedDataset:
    """A data set with changed samples of another, which is closed with it; subclasses read them."""

    def __init__(self, dataset: Dataset, fields: Mapping[str, Field]) -> None:
        self.dataset = dataset
        self.fields: Mapping[str, Field] = MappingProxyType({**fields})
        self.sample_count = dataset.sample_count

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        return self.dataset.describe()

    def close(self) -> None:
        """Close all files. May be called twice."""
        self.dataset.close()


class OneSequenceDataset(WrappedDataset):
    """Samples of text, masked or not, that say that they are one sequence each: `segments`, and `position_ids`.

    So they stand beside samples that are several.
    """

    def __init__(self, dataset: Dataset) -> None:
        field = dataset.fields["input_ids"]
        super().__init__(dataset, {**dataset.fields, "segments": field, "position_ids": field})

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`."""
        self.dataset.read(indices, {name: out[name] for name in self.dataset.fields}, epoch)
        is_real = out.get("attention_mask", np.ones_like(out["segments"]))
        out["segments"][...] = is_real
        out["position_ids"][...] = np.arange(is_real.shape[1]) * is_real


class ChosenTextsDataset(WrappedDataset):
    """Pairs of texts whose chosen text is learned as a whole, prompt and answer: `mask` says which of its labels count.

    Args:
        dataset: of `input_ids`, `labels`, `label_mask` and `mask`, which becomes `sample_mask`
    """

    def __init__(self, dataset: Dataset) -> None:
        fields = dataset.fields
        super().__init__(dataset, {**fields, "mask": fields["label_mask"], "sample_mask": fields["mask"]})

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill all fields; see `Dataset.read`. Labels before the answer are the tokens that follow."""
        names = ("input_ids", "labels", "label_mask")
        self.dataset.read(indices, {**{name: out[name] for name in names}, "mask": out["sample_mask"]}, epoch)
        ids, labels, counts = (out[name].reshape(len(indices), 2, -1)[:, 0] for name in names)
        mask = out["mask"].reshape(len(indices), 2, -1)
        # The last label that counts ends the text.
        ends = np.flip(np.maximum.accumulate(np.flip(counts, axis=1), axis=1), axis=1) != 0
        mask[:, 0], mask[:, 1] = ends, 0
        is_prompt = ends[:, :-1] & (counts[:, :-1] == 0)
        labels[:, :-1][is_prompt] = ids[:, 1:][is_prompt]


class SinkTokensDataset(WrappedDataset):
    """A text data set with a run of equal tokens put into each sample for later ones to attend to; their loss is 0.

    Args:
        dataset: of `input_ids`, `labels` and `mask`
        token: the id to put in
        count: number of tokens to put in
        position: of the token before which they go, at most the length of a sample
        keep_length: cut the end of the samples off, so that they are as long as before
    """

    def __init__(
        self, dataset: Dataset, *, token: int, count: int, position: int = 0, keep_length: bool = False
    ) -> None:
        [length] = dataset.fields["labels"].shape
        self._token, self._sinks = token, slice(position, position + count)
        self.added_tokens = 0 if keep_length else count
        """tokens by which a sample is longer"""
        shape = (length + self.added_tokens,)
        super().__init__(dataset, {name: Field(shape, field.dtype) for name, field in dataset.fields.items()})

    def describe(self) -> str:
        """Return source and number of the samples, in one line of text."""
        [length] = self.fields["labels"].shape
        count = self._sinks.stop - self._sinks.start
        return f"{self.dataset.describe()}, with {count:,} sink tokens in each: {length:,} tokens"

    def read(self, indices: Array, out: Mapping[str, Array], epoch: int = 0, /) -> None:
        """Fill `input_ids`, `mask` and `labels`; see `Dataset.read`."""
        inner = allocate(self.dataset.fields, len(indices))
        self.dataset.read(indices, inner, epoch)
        start, stop = self._sinks.start, self._sinks.stop
        for name, values in inner.items():
            target = out[name]
            rest = max(target.shape[1] - stop, 0)
            target[:, :start] = values[:, : min(start, target.shape[1])]
            # Labels of sinks are masked: 0 like all labels that do not count.
            target[:, start:stop] = self._token if name == "input_ids" else 0
            target[:, stop:] = values[:, start : start + rest]
