"""The bigram baseline."""

from math import log

import numpy as np
import pytest

from cstool.training.data import bigram, bigram_loss, open_hdf5_text, open_mnist
from tests.unit.training.data.made import write


def text(tmp_path, name, tokens, labels, mask):
    write(tmp_path / name / "a.h5", np.array([tokens, mask, labels], np.int32).transpose(1, 0, 2).copy())
    return open_hdf5_text([tmp_path / name])


@pytest.fixture
def train(tmp_path):
    """Train on the pairs 0-1, 0-1, 0-2, 1-0, and a masked 2-2."""
    return text(tmp_path, "train", [[0, 0, 0], [1, 2, 0]], [[1, 1, 2], [0, 2, 0]], [[1, 1, 1], [1, 0, 0]])


@pytest.fixture
def val(tmp_path):
    """Hold out the pairs 0-1, 2-2, and a masked 0-0."""
    return text(tmp_path, "val", [[0, 2, 0]], [[1, 2, 0]], [[1, 1, 0]])


def test_the_loss_is_that_of_counted_pairs_smoothed_by_one(tmp_path, train, val, monkeypatch):
    expected = -(log((2 + 1) / (3 + 3)) + log((0 + 1) / (0 + 3))) / 2
    assert bigram_loss(train, val, 3) == pytest.approx(expected, rel=1e-12)
    nothing = text(tmp_path, "nothing", [[0]], [[0]], [[0]])
    assert bigram_loss(nothing, val, 100) == pytest.approx(log(100), rel=1e-12)
    monkeypatch.setattr(bigram, "_BLOCK_TOKENS", 1)
    assert bigram_loss(train, val, 3) == pytest.approx(expected, rel=1e-12)


def test_what_no_bigram_model_can_be_counted_of_is_refused(tmp_path, error_of, mnist, train, val):
    mnist("train", 5)
    digits, nothing = open_mnist([mnist.folder]), text(tmp_path, "nothing", [[0]], [[0]], [[0]])
    digits_named = "DIR/mnist (first 80 % of train-*, the only files there): 4 samples"
    limit = "must be at most 4096 for a bigram model, got 4097\nhint: its table has vocab_size x vocab_size entries; "
    for held_out, vocab_size, message in (
        (val, 4097, f"vocab_size: {limit}use a byte-level data set"),
        (val, 2, "DIR/train: 2 samples of 3 tokens: tokens must be below vocab_size (2) for a bigram model"),
        (nothing, 3, "DIR/nothing: 1 samples of 1 tokens: must have unmasked positions, got none"),
        (digits, 3, f"{digits_named}: must be a language-model data set for a bigram model"),
    ):
        assert error_of(bigram_loss, train, held_out, vocab_size) == message
