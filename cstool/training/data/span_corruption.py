"""Span corruption: runs of tokens are taken out of a text, and a model of sequences has to tell them.

Of L tokens, 15 % are noise, in spans of 3 in the mean. In the inputs, each span is one sentinel; the targets are the
sentinels, each followed by its span. Sentinels are the last ids of the vocabulary, downwards. A text begins with a run
that is no noise; among ways to cut it that keep these numbers, all are equally likely. The spans follow from (seed,
epoch, number of the sample) alone.

Source: Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer", 2020,
sections 3.1.4 and 3.3.4; rounding of numbers, and lengths that go together: Cerebras Model Zoo 2.10.0,
data/nlp/t5/t5_utils.py.
"""

from dataclasses import dataclass

import numpy as np

from cstool.training.data.dataset import Array
from cstool.training.data.samples import sample_draws

NOISE_DENSITY, MEAN_SPAN = 0.15, 3.0


@dataclass(frozen=True)
class SpanLengths:
    """Lengths of texts before and after corruption.

    Args:
        raw: tokens of a text
        targets: T, tokens that its targets have at most, with the end of the sequence
        spans: sentinels that it takes at most
    """

    raw: int
    targets: int
    spans: int


def span_lengths(sequence_length: int) -> SpanLengths:
    """Return the lengths of texts that become inputs of S tokens at most: 512 of 568, with 114 of targets.

    The inputs leave room for the end of a sequence, as in T5.
    """

    def corrupted(raw: int) -> int:
        noise = round(raw * NOISE_DENSITY)
        return raw - noise + round(noise / MEAN_SPAN) + 1

    raw = sequence_length
    while corrupted(raw) < sequence_length:
        raw += 1
    noise, spans = noise_of(raw)
    return SpanLengths(raw, noise + spans + 1, spans)


def noise_of(length: int) -> tuple[int, int]:
    """Return the number of noise tokens among L >= 2, and of their spans: both at least 1; one token is no noise."""
    noise = min(max(round(length * NOISE_DENSITY), 1), length - 1)
    return noise, max(round(noise / MEAN_SPAN), 1)


@dataclass(frozen=True)
class SpanCorruption:
    """The choice of spans that are taken out.

    Args:
        vocab_size: V, sentinels included; the first one of a sample is V - 1, the next V - 2
        seed: of the draws
    """

    vocab_size: int
    seed: int

    def noise_masks(self, lengths: Array, samples: Array, epoch: int) -> Array:
        """Return (n, longest) bool: true at the noise tokens of some samples.

        Args:
            lengths: (n,) tokens of each, at least 1
            samples: (n,) int64, their numbers
            epoch: number of earlier draws for the same samples
        """
        longest = int(lengths.max())
        draws = sample_draws(self.seed, "corrupted spans", samples, longest, epoch)
        masks = np.zeros((len(samples), longest), bool)
        for mask, length, own in zip(masks, lengths.tolist(), draws, strict=True):
            if length < 2:
                continue  # one token has no room for both
            noise, spans = noise_of(length)
            runs = np.empty(2 * spans, np.int64)
            runs[0::2] = _segments(length - noise, spans, own[:, 0])
            runs[1::2] = _segments(noise, spans, own[:, 1])
            mask[:length] = np.repeat(np.arange(2 * spans) % 2 == 1, runs)
        return masks

    def corrupted(self, tokens: Array, is_noise: Array) -> tuple[Array, Array]:
        """Return inputs and targets of (L,) tokens, their ends unmarked."""
        return self._with_sentinels(tokens, is_noise), self._with_sentinels(tokens, ~is_noise)

    def _with_sentinels(self, tokens: Array, is_out: Array) -> Array:
        """Put a sentinel in the place of each run of tokens that is taken out."""
        begins = is_out & ~np.concatenate([[False], is_out[:-1]])
        marked: Array = np.where(begins, self.vocab_size - np.cumsum(begins), tokens)
        kept: Array = marked[begins | ~is_out]
        return kept


def _segments(items: int, segments: int, draws: Array) -> Array:
    """Return (segments,) lengths of at least 1 that add up to `items`, all ways to do that equally likely."""
    cuts = np.sort(np.argsort(draws[: items - 1], kind="stable")[: segments - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [items]]))
