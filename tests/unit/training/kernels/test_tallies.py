"""Counts of evaluations, against slow ones: a class, an n-gram at a time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.kernels.tallies import class_tallies, half_tallies, ngram_tallies

SAMPLES, TOKENS, CLASSES = 4, 5, 3
SENTENCES, WORDS = 3, 9


def of_classes(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Predictions, labels and a mask, in which the last sample does not count."""
    rng = np.random.default_rng(seed)
    predicted, labels = (rng.integers(0, CLASSES, (SAMPLES, TOKENS)) for _ in range(2))
    mask = (rng.random((SAMPLES, TOKENS)) < 0.5).astype(np.float32)
    mask[:-1, 0], mask[-1] = 1, 0
    return predicted.astype(np.float32), labels.astype(np.int32), mask


def test_classes_are_counted_in_all_of_a_sample_that_is_there():
    predicted, labels, mask = of_classes(0)
    ours, theirs = (array[: SAMPLES - 1].ravel().astype(int).tolist() for array in (predicted, labels))
    both = [one for one, other in zip(ours, theirs, strict=True) if one == other]
    expected = [counted.count(number) for counted in (both, ours, theirs) for number in range(CLASSES)]
    found = class_tallies(predicted.ravel(), labels.ravel(), mask.ravel(), TOKENS, CLASSES)
    assert found == tuple(expected)
    assert all(type(count) is int for count in found)


def of_sentences(seed: int) -> dict[str, np.ndarray]:
    """Sentences of words, which begin with none; of the last sample none is there."""
    rng = np.random.default_rng(seed)
    words = rng.integers(-1, 4, (SAMPLES, WORDS)).astype(np.int32)
    positions = np.zeros((SAMPLES, SENTENCES), np.int32)
    mask = np.zeros((SAMPLES, SENTENCES), np.float32)
    for sample in range(SAMPLES - 1):
        there = rng.integers(1, SENTENCES + 1)
        positions[sample, :there] = [0, *sorted(rng.choice(np.arange(1, WORDS), there - 1, replace=False))]
        mask[sample, :there] = 1
    chosen, labels = (rng.integers(0, 2, (SAMPLES, SENTENCES)).astype(np.float32) for _ in range(2))
    return {"chosen": chosen, "labels": labels, "mask": mask, "positions": positions, "words": words}


def slow_ngrams(found: dict[str, np.ndarray], n: int) -> tuple[int, int, int]:
    """N-grams that both texts have, those of the first, and those of the second."""
    totals = [0, 0, 0]
    for sample in range(SAMPLES):
        texts = []
        for which in ("chosen", "labels"):
            text = []
            for place in range(WORDS):
                begun = [
                    k for k in range(SENTENCES) if found["mask"][sample, k] and found["positions"][sample, k] <= place
                ]
                if begun and found[which][sample, begun[-1]] and found["words"][sample, place] >= 0:
                    text.append(int(found["words"][sample, place]))
            texts.append([tuple(text[first : first + n]) for first in range(len(text) - n + 1)])
        ours, theirs = texts
        totals[1] += len(ours)
        totals[2] += len(theirs)
        for gram in ours:
            if gram in theirs:
                theirs.remove(gram)
                totals[0] += 1
    return totals[0], totals[1], totals[2]


@given(seed=st.integers(0, 10_000))
def test_ngrams_of_chosen_sentences_are_counted(seed):
    found = of_sentences(seed)
    words, pairs = slow_ngrams(found, 1), slow_ngrams(found, 2)
    assert ngram_tallies(**found) == tuple(count for both in zip(words, pairs, strict=True) for count in both)


def test_samples_are_counted_by_halves():
    rightly = np.array([True, False, True, True, True, False])
    mask = np.array([1, 1, 1, 1, 0, 1], np.float32)
    matched = np.array([1, 1, 0, 1, 0, 0], np.int32)
    assert half_tallies(rightly, mask, matched) == (2, 1, 3, 2, 3, 2)


def test_counts_of_parts_are_those_of_the_whole():
    cuts, sentences = [slice(0, 2), slice(2, SAMPLES)], of_sentences(1)

    def of_part(cut: slice) -> tuple[int, ...]:
        found = class_tallies(*(array[cut].ravel() for array in of_classes(1)), TOKENS, CLASSES)
        return (*found, *ngram_tallies(**{name: array[cut] for name, array in sentences.items()}))

    assert tuple(map(sum, zip(*map(of_part, cuts), strict=True))) == of_part(slice(None))
