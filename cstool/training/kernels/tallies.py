"""Counts from which evaluations compute scores: whole numbers, so that their sums have no order.

Of things that are predicted and that are labels: the counts of right predictions, of predictions, and of labels. Things
are classes; or either half of the data, whose samples have one prediction and one label each; or, of texts whose
sentences are chosen, n-grams of words, which are counted as one for each n.

Source: Lin, "ROUGE: a package for automatic evaluation of summaries", 2004, section 2: n-grams that two summaries have
in common, each as often as it is in both.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import compress, pairwise

import numpy as np

Array = np.ndarray


def class_tallies(predicted: Array, labels: Array, mask: Array, sequence: int, classes: int) -> tuple[int, ...]:
    """Count classes over all tokens, masked ones included, of samples that have an unmasked one.

    Args:
        predicted, labels: (T,), the class of each token
        mask: (T,)
        sequence: tokens of a sample
        classes: number of classes

    Returns:
        (3 classes,), for each class: right predictions; then predictions; then labels
    """
    counts = np.repeat(mask.reshape(-1, sequence).any(axis=1), sequence)
    labels, predicted = labels[counts], predicted[counts].astype(np.int64)
    found = [np.bincount(each, minlength=classes) for each in (labels[predicted == labels], predicted, labels)]
    return tuple(np.concatenate(found).tolist())


def half_tallies(rightly: Array, mask: Array, matched: Array) -> tuple[int, ...]:
    """Count the samples that are there of either half of the data.

    Args:
        rightly: (B,), whether the class was predicted
        mask: (B,)
        matched: (B,) int32, 1 for the first half, 0 for the other

    Returns:
        (6,), for each half: right predictions; then samples; then samples once more, since each has one label
    """
    halves = [(mask != 0) & (matched == half) for half in (1, 0)]
    all_of = [int(np.count_nonzero(half)) for half in halves]
    return (*(int(np.count_nonzero(half & rightly)) for half in halves), *all_of, *all_of)


def ngram_tallies(chosen: Array, labels: Array, mask: Array, positions: Array, words: Array) -> tuple[int, ...]:
    """Count the words, and pairs of words, of chosen sentences, and of sentences that should be chosen.

    Args:
        chosen, labels: (B, C), whether a sentence is chosen, and should be
        mask: (B, C), 0 for sentences that do not exist
        positions: (B, C) int32, token with which a sentence begins, ascending
        words: (B, S) int32, the number of the word that begins with a token; -1 where none does

    Returns:
        (6,), of words and of pairs the number that both have; then of the chosen sentences; then of the right ones
    """
    found = np.zeros((3, 2), np.int64)
    for sample in range(len(words)):
        there = mask[sample] != 0
        edges = [*positions[sample][there].tolist(), words.shape[1]]
        runs = [words[sample, start:stop] for start, stop in pairwise(edges)]
        texts = [_text(runs, which[sample][there]) for which in (chosen, labels)]
        for n in (1, 2):
            ours, theirs = (Counter(zip(*(text[first:] for first in range(n)), strict=False)) for text in texts)
            found[:, n - 1] += (ours & theirs).total(), ours.total(), theirs.total()
    return tuple(found.reshape(-1).tolist())


def _text(runs: Sequence[Array], taken: Array) -> list[int]:
    """Numbers of the words of the sentences that are taken, one behind the other."""
    return [number for run in compress(runs, taken.tolist()) for number in run.tolist() if number >= 0]
