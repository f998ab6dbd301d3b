"""Scores of an evaluation: not means over batches, but from counts over all of its data.

For a class, TP is the number of its right predictions, P the number of its predictions, L the number of its labels; its
F1 score is 2 TP / (P + L), the harmonic mean of precision, TP / P, and recall, TP / L, and 0 where it is neither.
ROUGE-N is the score of n-grams: TP the n-grams that the chosen sentences and the labelled sentences have in common, P
and L all n-grams of either. If each sample is predicted once, P is L over all classes, and the score the accuracy.
Scores of no labels at all, and of a half without a
sample, are NaN.

Source: van Rijsbergen, "Information retrieval", 1979, chapter 7; Lin, "ROUGE: a package for automatic evaluation of
summaries", 2004. Over which classes the vendor takes it: Cerebras Model Zoo 2.10.0, models/nlp/bert/classifier/model.py
(`micro`) and models/nlp/bert/token_classifier/model.py (`macro`).
"""

import math
from collections.abc import Sequence

from cstool.model.ir import Loss
from cstool.training.data import Dataset, TokenClassesDataset

_OF_NAMES = ("B", "I")
"""first letters of labels that count: tokens at the beginning of an entity, and inside of it"""


def scores_of(loss: Loss, tallies: Sequence[int], samples: Dataset) -> tuple[float, ...]:
    """Return the scores of a loss, in the order of `Loss.score_names`.

    Args:
        tallies: counts over all of the data; see `LossResult`
        samples: the data set, which may know the names of classes
    """
    if loss.scores is None:
        return ()
    things = len(tallies) // 3
    counts = [tallies[start : start + things] for start in range(0, 3 * things, things)]
    if not any(counts[-1]):
        return (math.nan,) * len(loss.score_names)
    if loss.scores == "micro_f1":
        return (_f1(*map(sum, counts)),)
    each = [_f1(*of_thing) for of_thing in zip(*counts, strict=True)]
    if loss.scores == "halves":
        return tuple(score if labels else math.nan for score, labels in zip(each, counts[-1], strict=True))
    if loss.scores == "rouge":
        return tuple(each)
    others = _nameless(samples)
    named = [score for number, score in enumerate(each) if number not in others]
    return (math.fsum(named) / len(named) if named else math.nan,)


def _f1(rightly: int, predicted: int, labelled: int) -> float:
    return 2 * rightly / max(1, predicted + labelled)


def _nameless(samples: Dataset) -> set[int]:
    """Numbers of the classes that are no part of a name: `O`, [PAD] and the like."""
    if not isinstance(samples, TokenClassesDataset):
        return set()
    return {number for name, number in samples.label_numbers.items() if not name.startswith(_OF_NAMES)}
