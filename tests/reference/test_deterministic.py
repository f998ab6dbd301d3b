"""The inputs of the recorded curves: made here as they were made there."""

import numpy as np
import pytest

from tests.reference import loss_curve_cases
from tests.reference.curve_file import read_curves
from tests.reference.deterministic import digest, image_batches, text_batches, weights

CASES = read_curves("loss_curves.json", loss_curve_cases.CASES)


@pytest.mark.parametrize("case", ["decoder_tied", "decoder_untied"])
def test_text_batches_are_those_that_the_curve_was_recorded_with(case: str) -> None:
    config = CASES[case]["config"]
    text = text_batches(batch_size=config["batch_size"], sequence_length=32, vocab_size=97, seed=config["seed"])
    assert digest({"text": text}) == CASES[case]["data_digest"]


@pytest.mark.parametrize("case", ["fc_mnist", "fc_mnist_nesterov"])
def test_image_batches_are_those_that_the_curve_was_recorded_with(case: str) -> None:
    config = CASES[case]["config"]
    pixels, labels = image_batches(batch_size=config["batch_size"], seed=config["seed"])
    assert digest({"pixels": pixels, "labels": labels}) == CASES[case]["data_digest"]


def test_labels_are_the_tokens_one_place_on() -> None:
    text = text_batches(batch_size=3, sequence_length=8, vocab_size=11, seed=5)
    assert np.array_equal(text[:, :, 2, :-1], text[:, :, 0, 1:])


def test_batches_differ_in_unmasked_tokens_and_the_first_sample_has_none() -> None:
    text = text_batches(batch_size=3, sequence_length=8, vocab_size=11, seed=5)
    assert text[0, 0, 1].sum() == 0
    assert len(set(text[:, :, 1].sum(axis=(1, 2)).tolist())) > 1


def test_a_weight_depends_on_its_own_name_and_shape_alone() -> None:
    alone = weights({"b.weight": (2, 3)}, seed=1)
    among_others = weights({"a.bias": (4,), "b.weight": (2, 3)}, seed=1)
    assert np.array_equal(alone["b.weight"], among_others["b.weight"])


def test_weights_of_two_names_differ() -> None:
    drawn = weights({"a.weight": (2, 3), "b.weight": (2, 3)}, seed=1)
    assert not np.array_equal(drawn["a.weight"], drawn["b.weight"])


def test_a_digest_changes_with_a_single_bit() -> None:
    array = np.zeros(4, np.float32)
    changed = np.array([0.0, 0.0, 0.0, -0.0], np.float32)
    assert digest({"a": array}) != digest({"a": changed})
