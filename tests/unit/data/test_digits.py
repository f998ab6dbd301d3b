"""The digits of scikit-learn as files of MNIST."""

import errno
import os
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cstool.data import DigitsSummary, allocate, open_mnist, prepare_digits, prepare_text, tokenizer_of
from cstool.data.digits import scale_up
from cstool.data.text_request import TextRequest
from tests.unit.data.made import content_of


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "digits"


def test_all_pictures_are_in_one_of_two_parts_with_their_labels(tmp_path, folder):
    summary = prepare_digits(folder)
    assert summary == DigitsSummary(folder, 1438, 359, already_prepared=False)
    known = {}
    for image, label in zip(scale_up(load_digits().images / 16), load_digits().target, strict=True):
        known.setdefault(image.tobytes(), []).append(label)
    for split, count in (("train", 1438), ("val", 359)):
        dataset = open_mnist([folder], split=split)
        out = allocate(dataset.fields, dataset.sample_count)
        dataset.read(np.arange(dataset.sample_count), out)
        assert (len(out["labels"]), out["labels"].tolist()) == (count, dataset._labels.tolist())
        for pixels, label in zip(dataset._pixels, out["labels"], strict=True):
            known[pixels.tobytes()].remove(label)
    assert not any(known.values())
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]


def test_the_same_seed_makes_the_same_files_and_another_one_others(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        prepare_digits(tmp_path / name, seed=seed)
    a, b, c = (content_of(tmp_path / name) for name in "abc")
    assert (a == b, a == c) == (True, False)


def test_pictures_are_scaled_between_the_middles_of_pixels():
    assert scale_up(np.ones((1, 8, 8))).tolist() == np.full((1, 28, 28), 255).tolist()
    ramp = scale_up(np.broadcast_to(np.arange(8) / 7, (1, 8, 8)))[0]
    middles = np.interp((np.arange(28) + 0.5) / 28 * 8 - 0.5, np.arange(8), np.arange(8) / 7)
    assert np.abs(ramp - 255 * middles).max() <= 0.5
    pictures = np.random.default_rng(1).random((3, 8, 8))
    assert (scale_up(pictures).transpose(0, 2, 1) == scale_up(pictures.transpose(0, 2, 1))).all()


ANOTHER = "must not hold another data set, got one made from other text or with other arguments\n"
ANOTHER += "hint: add --overwrite to replace it, or give another --output"


def test_what_is_there_is_kept_or_refused_or_replaced(tmp_path, folder, error_of):
    first = prepare_digits(folder)
    assert prepare_digits(folder) == replace(first, already_prepared=True)
    assert tokenizer_of(folder) is None
    assert error_of(prepare_digits, folder, seed=2) == f"DIR/digits: {ANOTHER}"
    (tmp_path / "a").write_text("text " * 100)
    assert error_of(prepare_text, [tmp_path / "a"], folder, TextRequest(sequence_length=8)) == f"DIR/digits: {ANOTHER}"
    assert prepare_digits(folder, val_fraction=0.5, overwrite=True).val == 898


@pytest.mark.parametrize("fraction", [0.0, 1.0, 0.0001, float("nan"), -1.0])
def test_a_held_out_share_that_is_none_is_refused(folder, error_of, fraction):
    assert error_of(prepare_digits, folder, val_fraction=fraction) == (
        f"val_fraction: must hold out some of the 1,797 pictures but not all, got {fraction}"
    )


def test_a_full_disk_is_reported_and_nothing_half_written_counts(tmp_path, folder, error_of, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert error_of(prepare_digits, folder) == (
        "DIR/digits: must fit on its disk, which is full\n"
        "hint: free some space and give the same command, which goes on from what is finished; or give another --output"
    )
    assert list(tmp_path.iterdir()) == []
