"""The inputs of the recorded curves: made here as they were made there."""

import numpy as np
import pytest

from tests.reference import loss_curve_cases
from tests.reference.deterministic import digest, image_batches, text_batches, weights
from tests.reference.recorded_file import read_curves

CASES = read_curves("loss_curves.json", loss_curve_cases.CASES)


@pytest.mark.parametrize("case", ["decoder_tied", "decoder_untied", "fc_mnist", "fc_mnist_nesterov"])
def test_batches_are_those_that_the_curve_was_recorded_with(case: str) -> None:
    config = CASES[case]["config"]
    how = {"batch_size": config["batch_size"], "seed": config["seed"]}
    if case.startswith("decoder"):
        arrays = {"text": text_batches(sequence_length=32, vocab_size=97, **how)}
    else:
        arrays = dict(zip(("pixels", "labels"), image_batches(**how), strict=True))
    assert digest(arrays) == CASES[case]["data_digest"]


def test_labels_are_the_tokens_one_place_on_and_batches_differ_in_unmasked_tokens() -> None:
    text = text_batches(batch_size=3, sequence_length=8, vocab_size=11, seed=5)
    assert np.array_equal(text[:, :, 2, :-1], text[:, :, 0, 1:])
    assert text[0, 0, 1].sum() == 0
    assert len(set(text[:, :, 1].sum(axis=(1, 2)).tolist())) > 1


def test_a_weight_depends_on_its_own_name_and_shape_alone() -> None:
    alone = weights({"b.weight": (2, 3)}, seed=1)
    among_others = weights({"a.weight": (2, 3), "b.weight": (2, 3)}, seed=1)
    assert np.array_equal(alone["b.weight"], among_others["b.weight"])
    assert not np.array_equal(among_others["a.weight"], among_others["b.weight"])


def test_a_digest_changes_with_a_single_bit() -> None:
    changed = np.array([0.0, 0.0, 0.0, -0.0], np.float32)
    assert digest({"a": np.zeros(4, np.float32)}) != digest({"a": changed})
