"""MNIST digits in IDX files."""

import gzip
import os

import numpy as np
import pytest

from cstool.data import allocate, open_mnist

HINT = (
    "hint: copy the four files of MNIST there, as they are published; `cstool data prepare digits` makes smaller ones"
)
FOLDER = "must be a folder with MNIST files such as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"


def read(dataset, indices):
    out = allocate(dataset.fields, len(indices))
    dataset.read(np.array(indices), out)
    return out


def test_a_sample_is_its_pixels_normalised_as_the_vendor_does_and_a_label_that_counts(mnist):
    mnist("train", 20)
    mnist("t10k", 1)
    dataset = open_mnist([mnist.folder])
    assert {name: (field.shape, field.dtype) for name, field in dataset.fields.items()} == {
        "x": ((784,), "float32"),
        "mask": ((), "float32"),
        "labels": ((), "int32"),
    }
    out = read(dataset, [13, 1, 1])
    dataset.close()
    dataset.close()
    expected = ((np.arange(784, 2 * 784) % 251 / 255 - 0.1307) / 0.3081).astype(np.float32)
    assert np.array_equal(out["x"][1:], [expected] * 2)
    assert (out["labels"].tolist(), out["mask"].tolist()) == ([3, 1, 1], [1, 1, 1])
    assert read(dataset, [1])["labels"].tolist() == [1]


def test_compressed_files_are_the_same_as_plain_ones(mnist):
    found = []
    for compress in (False, True):
        mnist("t10k", 5, compress=compress)
        found.append(read(open_mnist([mnist.folder]), range(4)))
        for path in list(mnist.folder.iterdir()):
            path.unlink()
    assert all(np.array_equal(found[0][name], found[1][name]) for name in ("x", "labels", "mask"))


@pytest.mark.parametrize(("split", "part", "count"), [("train", "train", 7), ("val", "t10k", 3)])
def test_with_both_pairs_each_part_has_its_own_files(mnist, split, part, count):
    mnist("train", 7)
    mnist("t10k", 3)
    assert open_mnist([mnist.folder], split=split).describe() == f"{mnist.folder} ({part}-*): {count} samples"


@pytest.mark.parametrize(
    ("part", "split", "words", "labels"),
    [("train", "train", "first 80 %", list(range(8))), ("t10k", "val", "last 20 %", [8, 9])],
)
def test_a_single_pair_is_split_in_80_and_20_percent(mnist, part, split, words, labels):
    mnist(part, 10)
    dataset = open_mnist([mnist.folder], split=split)
    described = f"{mnist.folder} ({words} of {part}-*, the only files there): {len(labels)} samples"
    assert (dataset.describe(), read(dataset, range(len(labels)))["labels"].tolist()) == (described, labels)


def test_files_may_lie_where_torchvision_puts_them(mnist, tmp_path):
    mnist.folder = tmp_path / "MNIST" / "raw"
    mnist("train", 5)
    assert open_mnist([tmp_path]).sample_count == 4


IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
AGAIN = "bytes after its header, got {}\nhint: it is truncated or damaged; copy it again"
HUGE, CLAIM = 2**32 - 1, "it is not the file it claims"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {LABELS: ((0x0803, 2), bytes(2))},
            f"{LABELS}: must begin with the magic number 0x00000801, got 0x00000803\nhint: {CLAIM}",
        ),
        ({IMAGES: ((0x0803, 2), b"")}, f"{IMAGES}: header must have 16 bytes, got 8\nhint: copy the file again"),
        ({IMAGES: ((0x0803, 2, 28, 28), bytes(784))}, f"{IMAGES}: must hold 1,568 {AGAIN.format(784)}"),
        ({IMAGES: ((0x0803, *[HUGE] * 3), b"")}, f"{IMAGES}: must hold {HUGE**3:,} {AGAIN.format(0)}"),
        ({IMAGES: ((0x0803, 2, 28, 14), bytes(784))}, f"{IMAGES}: images must be 28 x 28 pixels, got 28 x 14"),
        ({LABELS: ((0x0801, 3), bytes(3))}, f"{LABELS}: must hold 2 labels, one for each image, got 3"),
        ({LABELS: ((0x0801, 2), b"\x09\x0a")}, f"{LABELS}: labels must be in [0, 10), got 10 in sample 1"),
        (
            {IMAGES: ((0x0803, 0, 28, 28), b""), LABELS: ((0x0801, 0), b"")},
            f"{LABELS}: must hold at least one label, got 0",
        ),
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
