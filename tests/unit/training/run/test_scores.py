"""Scores from counts, against scikit-learn, and against the formula of the vendor's metric."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import Loss
from cstool.model.params import TokenClassesParams
from cstool.training.data.token_classes import TokenClassesDataset
from cstool.training.kernels.tallies import class_tallies
from cstool.training.run.evaluate import scores_of
from tests.unit.training.data.encoder_files import opened_by, write_rows, write_vocabulary
from tests.unit.training.run.sessions import Digits

CLASSES = 4
NAMES = {"O": 0, "B-PER": 1, "I-PER": 2, "X": 3}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """Samples whose classes have names."""
    folder = tmp_path_factory.mktemp("named")
    write_rows(folder / "data", "a.csv", ("tokens", "labels"), [["the cat", "O B-PER"]])
    numbers = folder / "label2id.json"
    numbers.write_text(json.dumps(NAMES))
    files = {"vocab_file": write_vocabulary(folder), "label_vocab_file": numbers}
    return opened_by(TokenClassesDataset, TokenClassesParams, [folder / "data"], **files, max_sequence_length=4)


@pytest.fixture(scope="module")
def f1_score():
    """Scikit-learn's, which takes a worker two seconds to import."""
    from sklearn.metrics import f1_score

    return f1_score


def tallies_of(predicted: list[int], labels: list[int], classes: int) -> tuple[int, ...]:
    mask = np.ones(len(labels), np.float32)
    return class_tallies(np.array(predicted, np.float32), np.array(labels, np.int32), mask, 1, classes)


def vendors(predicted: list[int], labels: list[int], kind: str, counted: list[int], classes: int) -> float:
    """F1 as the vendor makes it: of a matrix of confusion, precision and recall, and a division by zero is 0."""

    def divide(over: float, under: float) -> float:
        return over / under if under else 0.0

    matrix = np.zeros((classes, classes))
    np.add.at(matrix, (labels, predicted), 1)
    sums = np.array([matrix.diagonal(), matrix.sum(axis=0), matrix.sum(axis=1)])
    if kind == "micro_f1":
        sums, counted = sums[:, counted].sum(axis=1, keepdims=True), [0]
    scores = []
    for rightly, of_predicted, of_labels in sums[:, counted].T:
        precision, recall = divide(rightly, of_predicted), divide(rightly, of_labels)
        scores.append(divide(2 * precision * recall, precision + recall))
    return sum(scores) / len(scores)


@given(pairs=st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1, max_size=40))
def test_macro_f1_is_the_mean_over_the_classes_of_names(named, f1_score, pairs):
    predicted, labels = (list(each) for each in zip(*pairs, strict=True))
    [found] = scores_of(Loss("loss", scores="macro_f1"), tallies_of(predicted, labels, CLASSES), named)
    expected = f1_score(labels, predicted, labels=[1, 2], average="macro", zero_division=0)
    assert found == pytest.approx(expected, abs=1e-12)
    assert found == pytest.approx(vendors(predicted, labels, "macro_f1", [1, 2], CLASSES), abs=1e-12)


@given(pairs=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40))
def test_micro_f1_is_that_of_all_classes_as_one(f1_score, pairs):
    predicted, labels = (list(each) for each in zip(*pairs, strict=True))
    [found] = scores_of(Loss("loss", scores="micro_f1"), tallies_of(predicted, labels, 2), Digits())
    assert found == pytest.approx(f1_score(labels, predicted, average="micro"), abs=1e-12)
    assert found == pytest.approx(vendors(predicted, labels, "micro_f1", [0, 1], 2), abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "tallies", "expected"),
    [
        # Where no class has a name all count.
        ("macro_f1", tallies_of([0, 1, 1, 2], [0, 1, 2, 2], 3), ((1 + 2 / 3 + 2 / 3) / 3,)),
        # A score for words and one for pairs of words.
        ("rouge", (3, 1, 4, 3, 6, 5), (2 * 3 / 10, 2 * 1 / 8)),
        ("rouge", (0, 0, 0, 0, 3, 2), (0.0, 0.0)),
        # Halves have an accuracy each.
        ("halves", (2, 1, 3, 4, 3, 4), (2 / 3, 1 / 4)),
        # A half without samples has none, and nothing has a score where there are no labels.
        ("halves", (2, 0, 3, 0, 3, 0), (2 / 3, math.nan)),
        ("rouge", (0, 0, 4, 3, 0, 0), (math.nan, math.nan)),
        ("micro_f1", (0,) * 6, (math.nan,)),
        ("macro_f1", (0,) * 6, (math.nan,)),
        (None, (), ()),
    ],
)
def test_scores_by_hand(kind, tallies, expected):
    loss = Loss("loss") if kind is None else Loss("loss", scores=kind)
    assert scores_of(loss, tallies, Digits()) == pytest.approx(expected, nan_ok=True)
