"""The loss of a bigram model: the mark that a language model has to beat."""

import math
from collections.abc import Iterator

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array, Dataset, read_blocks

BIGRAM_VOCAB_LIMIT = 4096
"""largest vocabulary; its table of counts takes 128 MiB"""

_BLOCK_TOKENS = 2**18


def bigram_loss(train: Dataset, val: Dataset, vocab_size: int) -> float:
    """Return the held-out loss of a bigram model with add-one smoothing [nats per token].

    Each label is predicted from its input token alone: p(b | a) = (count(a, b) + 1) / (count(a) + V), counted
    over all unmasked positions of `train`, evaluated over all of `val`.

    Raises:
        DataError: V is too large, a data set is not one of text, or no held-out position counts.

    Source: Jurafsky and Martin, "Speech and Language Processing", section 3.6.1 (Laplace smoothing).
    """
    if not 0 < vocab_size <= BIGRAM_VOCAB_LIMIT:
        raise DataError(
            f"vocab_size: must be at most {BIGRAM_VOCAB_LIMIT} for a bigram model, got {vocab_size}",
            "its table has vocab_size x vocab_size entries; use a byte-level data set",
        )
    for dataset in (train, val):
        if "input_ids" not in dataset.fields:
            raise DataError(f"{dataset.describe()}: must be a language-model data set for a bigram model")
    counts = np.zeros(vocab_size * vocab_size, np.int64)
    for pairs in _pairs(train, vocab_size):
        np.add.at(counts, pairs, 1)
    totals = counts.reshape(vocab_size, vocab_size).sum(axis=1)
    loss_sum, positions = 0.0, 0
    for pairs in _pairs(val, vocab_size):
        loss_sum += float(np.sum(np.log(totals[pairs // vocab_size] + vocab_size) - np.log(counts[pairs] + 1)))
        positions += len(pairs)
    if positions == 0:
        raise DataError(f"{val.describe()}: must have unmasked positions, got none")
    assert math.isfinite(loss_sum)
    return loss_sum / positions


def _pairs(dataset: Dataset, vocab_size: int) -> Iterator[Array]:
    """Yield input x V + label of the unmasked positions, in blocks of bounded size."""
    (sequence_length,) = dataset.fields["input_ids"].shape
    for out in read_blocks(dataset, max(1, _BLOCK_TOKENS // sequence_length), dataset.sample_count):
        counted = out["mask"] != 0
        tokens, labels = out["input_ids"][counted], out["labels"][counted]
        if len(tokens) and max(tokens.max(), labels.max()) >= vocab_size:
            raise DataError(f"{dataset.describe()}: tokens must be below vocab_size ({vocab_size}) for a bigram model")
        yield tokens.astype(np.int64) * vocab_size + labels
