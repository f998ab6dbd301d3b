"""MNIST digits in IDX files, and those of scikit-learn as such files."""

import errno
import gzip
import os
from dataclasses import replace

import numpy as np
import pytest

from cstool.training.data import DigitsSummary, open_mnist, prepare_digits, prepare_text, tokenizer_of
from cstool.training.data.digits import scale_up
from cstool.training.data.text_request import TextRequest
from tests.contract.refusal import failing
from tests.unit.training.data.encoder_files import read, shapes
from tests.unit.training.data.made import ANOTHER, FREE_SPACE, content_of

HINT = (
    "hint: copy the four files of MNIST there, as they are published; `cstool data prepare digits` makes smaller ones"
)
FOLDER = "must be a folder with MNIST files such as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"


def test_a_sample_is_its_pixels_normalised_as_the_vendor_does_and_a_label_that_counts(mnist):
    mnist("train", 20)
    mnist("t10k", 1)
    dataset = open_mnist([mnist.folder])
    assert shapes(dataset) == {"x": ((784,), "float32"), "mask": ((), "float32"), "labels": ((), "int32")}
    out = read(dataset, [13, 1, 1])
    dataset.close()
    dataset.close()
    expected = ((np.arange(784, 2 * 784) % 251 / 255 - 0.1307) / 0.3081).astype(np.float32)
    assert np.array_equal(out["x"][1:], [expected] * 2)
    assert (out["labels"], out["mask"]) == ([3, 1, 1], [1, 1, 1])
    assert read(dataset, [1])["labels"] == [1]


def test_compressed_files_are_the_same_as_plain_ones(mnist):
    found = []
    for compress in (False, True):
        mnist("t10k", 5, compress=compress)
        found.append(read(open_mnist([mnist.folder]), range(4)))
        for path in list(mnist.folder.iterdir()):
            path.unlink()
    assert found[0] == found[1]


def test_with_both_pairs_each_part_has_its_own_files(mnist):
    mnist("train", 7)
    mnist("t10k", 3)
    for split, told in (("train", "(train-*): 7 samples"), ("val", "(t10k-*): 3 samples")):
        assert open_mnist([mnist.folder], split=split).describe() == f"{mnist.folder} {told}"


@pytest.mark.parametrize(
    ("part", "split", "words", "labels"),
    [("train", "train", "first 80 %", list(range(8))), ("t10k", "val", "last 20 %", [8, 9])],
)
def test_a_single_pair_is_split_in_80_and_20_percent(mnist, part, split, words, labels):
    mnist(part, 10)
    dataset = open_mnist([mnist.folder], split=split)
    described = f"{mnist.folder} ({words} of {part}-*, the only files there): {len(labels)} samples"
    assert (dataset.describe(), read(dataset, range(len(labels)))["labels"]) == (described, labels)


def test_files_may_lie_where_torchvision_puts_them(mnist, tmp_path):
    mnist.folder = tmp_path / "MNIST" / "raw"
    mnist("train", 5)
    assert open_mnist([tmp_path]).sample_count == 4


IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
AGAIN = "bytes after its header, got {}\nhint: it is truncated or damaged; copy it again"
HUGE, CLAIM = 2**32 - 1, "it is not the file it claims"
MAGIC = "must begin with the magic number 0x00000801"
EMPTY = {IMAGES: ((0x0803, 0, 28, 28), b""), LABELS: ((0x0801, 0), b"")}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({LABELS: ((0x0803, 2), bytes(2))}, f"{LABELS}: {MAGIC}, got 0x00000803\nhint: {CLAIM}"),
        ({IMAGES: ((0x0803, 2), b"")}, f"{IMAGES}: header must have 16 bytes, got 8\nhint: copy the file again"),
        ({IMAGES: ((0x0803, 2, 28, 28), bytes(784))}, f"{IMAGES}: must hold 1,568 {AGAIN.format(784)}"),
        ({IMAGES: ((0x0803, *[HUGE] * 3), b"")}, f"{IMAGES}: must hold {HUGE**3:,} {AGAIN.format(0)}"),
        ({IMAGES: ((0x0803, 2, 28, 14), bytes(784))}, f"{IMAGES}: images must be 28 x 28 pixels, got 28 x 14"),
        ({LABELS: ((0x0801, 3), bytes(3))}, f"{LABELS}: must hold 2 labels, one for each image, got 3"),
        ({LABELS: ((0x0801, 2), b"\x09\x0a")}, f"{LABELS}: labels must be in [0, 10), got 10 in sample 1"),
        (EMPTY, f"{LABELS}: must hold at least one label, got 0"),
    ],
    ids=["magic", "header", "truncated", "huge", "dimensions", "counts", "label", "empty"],
)
def test_a_damaged_file_is_refused_by_name(mnist, error_of, changes, expected):
    content = {IMAGES: ((0x0803, 2, 28, 28), bytes(2 * 784)), LABELS: ((0x0801, 2), bytes(2))} | changes
    for name, (header, data) in content.items():
        mnist.file(f"train-{name}", header, data)
    assert error_of(open_mnist, [mnist.folder]) == f"DIR/mnist/train-{expected}"


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-9], gzip.decompress, lambda content: content[:-8] + bytes(4) + content[-4:]],
    ids=["truncated", "not compressed", "wrong checksum"],
)
def test_a_gzip_file_that_is_not_whole_is_refused(mnist, error_of, damage):
    mnist("train", 3, compress=True)
    path = mnist.folder / "train-labels-idx1-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    rule = "must be a whole gzip file, got a truncated or damaged one\nhint: copy the file again"
    assert error_of(open_mnist, [mnist.folder]) == f"DIR/mnist/{path.name}: {rule}"


def test_files_that_are_missing_too_few_or_pipes_are_refused(mnist, error_of):
    mnist("train", 1)
    rule = "must hold at least two samples to split in train and val, got 1"
    assert error_of(open_mnist, [mnist.folder]) == f"DIR/mnist: {rule}"
    images, labels = (mnist.folder / f"train-{name}" for name in (IMAGES, LABELS))
    labels.unlink()
    assert error_of(open_mnist, [mnist.folder]) == (
        f"DIR/mnist: must hold {labels.name} or {labels.name}.gz beside {images.name}, got neither\n{HINT}"
    )
    mnist("train", 3)
    images.unlink()
    os.mkfifo(images)  # keeps nobody waiting
    rule = "must be a file of MNIST, got a pipe or a device\nhint: copy the file again"
    assert error_of(open_mnist, [mnist.folder]) == f"DIR/mnist/{images.name}: {rule}"


def test_what_is_no_folder_of_digits_is_refused(tmp_path, error_of):
    tried = "found nothing there (looked for it as /x/no, /y/no)"
    for folders, options, expected in [
        ([""], {}, f"DIR: {FOLDER}, got none among its entries (0)\n{HINT}"),
        (["no"], {"tried": "/x/no, /y/no"}, f"DIR/no: {FOLDER}, {tried}\n{HINT}"),
        (["", ""], {}, "data_dir: must be one folder for MNIST, got 2"),
        ([""], {"split": "test"}, "split: must be train or val, got test"),
    ]:
        assert error_of(open_mnist, [tmp_path / folder for folder in folders], **options) == expected


def test_all_pictures_are_in_one_of_two_parts_with_their_labels_as_the_seed_says(tmp_path):
    folder = tmp_path / "digits"
    summary = prepare_digits(folder)
    assert summary == DigitsSummary(folder, 1438, 359, already_prepared=False)
    from sklearn.datasets import load_digits  # here alone: it takes a worker two seconds

    known = {}
    for image, label in zip(scale_up(load_digits().images / 16), load_digits().target, strict=True):
        known.setdefault(image.tobytes(), []).append(label)
    for split, count in (("train", 1438), ("val", 359)):
        dataset = open_mnist([folder], split=split)
        out = read(dataset, range(dataset.sample_count))
        assert (len(out["labels"]), out["labels"]) == (count, dataset._labels.tolist())
        for pixels, label in zip(dataset._pixels, out["labels"], strict=True):
            known[pixels.tobytes()].remove(label)
    assert not any(known.values())
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]
    for name, seed in (("same", 1), ("other", 2)):
        prepare_digits(tmp_path / name, seed=seed)
        assert (content_of(tmp_path / name) == content_of(folder)) == (seed == 1)


def test_pictures_are_scaled_between_the_middles_of_pixels():
    assert scale_up(np.ones((1, 8, 8))).tolist() == np.full((1, 28, 28), 255).tolist()
    ramp = scale_up(np.broadcast_to(np.arange(8) / 7, (1, 8, 8)))[0]
    middles = np.interp((np.arange(28) + 0.5) / 28 * 8 - 0.5, np.arange(8), np.arange(8) / 7)
    assert np.abs(ramp - 255 * middles).max() <= 0.5
    pictures = np.random.default_rng(1).random((3, 8, 8))
    assert (scale_up(pictures).transpose(0, 2, 1) == scale_up(pictures.transpose(0, 2, 1))).all()


def test_what_is_there_is_kept_or_refused_or_replaced(tmp_path, error_of):
    folder = tmp_path / "digits"
    first = prepare_digits(folder)
    assert prepare_digits(folder) == replace(first, already_prepared=True)
    assert tokenizer_of(folder) is None
    assert error_of(prepare_digits, folder, seed=2) == f"DIR/digits: {ANOTHER}"
    (tmp_path / "a").write_text("text " * 100)
    assert error_of(prepare_text, [tmp_path / "a"], folder, TextRequest(sequence_length=8)) == f"DIR/digits: {ANOTHER}"
    assert prepare_digits(folder, val_fraction=0.5, overwrite=True).val == 898


@pytest.mark.parametrize("fraction", [0.0, 1.0, 0.0001, float("nan"), -1.0])
def test_a_held_out_share_that_is_none_is_refused(tmp_path, error_of, fraction):
    rule = "must hold out some of the 1,797 pictures but not all"
    told = error_of(prepare_digits, tmp_path, val_fraction=fraction)
    assert told == f"val_fraction: {rule}, got {fraction}"


def test_a_full_disk_is_reported_and_nothing_half_written_counts(tmp_path, error_of, monkeypatch):
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    told = error_of(prepare_digits, tmp_path / "digits")
    assert told == f"DIR/digits: must fit on its disk, which is full\n{FREE_SPACE}"
    assert list(tmp_path.iterdir()) == []
