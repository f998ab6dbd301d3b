"""The tokens that a masked language model has to tell: drawn anew in every epoch.

Of a sample, a share of the tokens is chosen; of these 80 % are replaced by the mask token, 10 % by a random token, and
10 % stay. All follows from (seed, epoch, number of the sample) alone; the order of reading does not matter.

Source: Devlin et al., "BERT: Pre-training of deep bidirectional transformers for language understanding", 2019,
section 3.1; number of tokens, and whole words: Cerebras Model Zoo 2.10.0, data/nlp/bert/bert_utils.py.
"""

from dataclasses import dataclass

import numpy as np

from cstool.training.data.dataset import Array
from cstool.training.data.samples import sample_draws

MASKED_BELOW, REPLACED_BELOW = round(0.8 * 2**32), round(0.9 * 2**32)
"""a word below the first becomes the mask token, below the second a random one; else the token stays"""


@dataclass(frozen=True)
class Masking:
    """The masking of tokens.

    Args:
        predictions: M, tokens masked at most
        probability: share of the tokens of a sample that are masked, in (0, 1]; at least one is
        mask_id: the mask token
        excluded: (V,) bool, tokens that are neither masked nor stand for others
        continues: (V,) bool, tokens that go on with a word, to mask whole words; None to mask tokens one by one
        seed: of the draws
    """

    predictions: int
    probability: float
    mask_id: int
    excluded: Array
    continues: Array | None
    seed: int

    def apply(self, ids: Array, lengths: Array, samples: Array, epoch: int) -> tuple[Array, Array, Array]:
        """Mask tokens of some samples, in place.

        Args:
            ids: (n, S) int32, tokens
            lengths: (n,) tokens of each sample, specials included
            samples: (n,) int64, numbers of the samples
            epoch: number of earlier draws for the same samples

        Returns:
            positions (n, M) int32, ascending; labels (n, M) int32, the tokens that were there; mask (n, M) float32, 1
            where a label counts. Positions and labels are 0 where it does not.
        """
        draws = sample_draws(self.seed, "masked tokens", samples, ids.shape[1], epoch)
        may_mask = (np.arange(ids.shape[1]) < lengths[:, None]) & ~self.excluded[ids]
        wanted = np.minimum(self.predictions, np.maximum(1, np.rint(lengths * self.probability).astype(np.int64)))
        if self.continues is None:
            chosen = _lowest(draws[..., 0], may_mask, wanted)
        else:
            goes_on = may_mask & self.continues[ids]
            chosen = np.zeros(ids.shape, bool)
            for row in range(len(ids)):
                words = _words(draws[row, :, 0], may_mask[row], goes_on[row], int(wanted[row]), self.predictions)
                chosen[row, words] = True
        rows, places = np.nonzero(chosen)
        counts = chosen.sum(axis=1)
        slots = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        positions, labels = (np.zeros((len(ids), self.predictions), np.int32) for _ in range(2))
        mask = np.zeros((len(ids), self.predictions), np.float32)
        positions[rows, slots], labels[rows, slots], mask[rows, slots] = places, ids[rows, places], 1
        kind, which = draws[rows, places, 1], draws[rows, places, 2].astype(np.uint64)
        others = np.flatnonzero(~self.excluded)
        replacements = others[(which * np.uint64(len(others)) >> np.uint64(32)).astype(np.int64)]
        kept = np.where(kind < REPLACED_BELOW, replacements, ids[rows, places])
        ids[rows, places] = np.where(kind < MASKED_BELOW, self.mask_id, kept)
        return positions, labels, mask


def _lowest(draws: Array, may_mask: Array, wanted: Array) -> Array:
    """Return (n, S) bool: the `wanted` tokens of lowest draw among the tokens that may be masked."""
    keys = np.where(may_mask, draws, np.uint64(2**32))
    order = np.argsort(keys, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(order.shape[1])[None], axis=1)
    return may_mask & (ranks < wanted[:, None])


def _words(draws: Array, may_mask: Array, goes_on: Array, wanted: int, most: int) -> list[int]:
    """Return the positions of whole words, in the order of their lowest draws, until there are `wanted` or more.

    A word beyond a total of `most` positions is left out. A token behind an unmaskable token begins a word.
    """
    places = np.flatnonzero(may_mask)
    starts = np.flatnonzero(~goes_on[places] | (np.diff(places, prepend=-2) > 1))
    if len(starts) == 0:
        return []
    words = np.split(places, starts[1:])
    chosen: list[int] = []
    for word in np.argsort(np.minimum.reduceat(draws[places], starts), kind="stable").tolist():
        if len(chosen) >= wanted:
            break
        if len(chosen) + len(words[word]) <= most:
            chosen.extend(words[word].tolist())
    return chosen
