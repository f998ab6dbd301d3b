"""MNIST digits in IDX files."""

import gzip
import os

import numpy as np
import pytest

from cstool.data import allocate, open_mnist

HINT = (
    "hint: copy the four files of MNIST there, as they are published; `cstool data prepare digits` makes smaller ones"
)
CONTENT = "MNIST files such as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz"


def read(dataset, indices):
    out = allocate(dataset.fields, len(indices))
    dataset.read(np.array(indices), out)
    return out


def test_pixels_are_normalised_as_the_vendor_does(mnist):
    mnist("train", 3)
    expected = ((np.arange(784, 2 * 784) % 251 / 255 - 0.1307) / 0.3081).astype(np.float32)
    assert np.array_equal(read(open_mnist([mnist.folder]), [1])["x"], [expected])


def test_labels_come_with_a_mask_of_ones(mnist):
    mnist("train", 20)
    mnist("t10k", 1)
    out = read(open_mnist([mnist.folder]), [13, 2, 2])
    assert (out["labels"].tolist(), out["mask"].tolist()) == ([3, 2, 2], [1, 1, 1])


def test_fields_are_pixels_mask_and_label(mnist):
    mnist("train", 5)
    fields = open_mnist([mnist.folder]).fields
    assert {name: (field.shape, field.dtype) for name, field in fields.items()} == {
        "x": ((784,), "float32"),
        "mask": ((), "float32"),
        "labels": ((), "int32"),
    }


def test_compressed_files_are_the_same_as_plain_ones(mnist):
    mnist("t10k", 5)
    plain = read(open_mnist([mnist.folder]), range(4))
    for path in list(mnist.folder.iterdir()):
        path.unlink()
    mnist("t10k", 5, compress=True)
    packed = read(open_mnist([mnist.folder]), range(4))
    assert all(np.array_equal(plain[name], packed[name]) for name in ("x", "labels", "mask"))


@pytest.mark.parametrize(("split", "part", "count"), [("train", "train", 7), ("val", "t10k", 3)])
def test_with_both_pairs_each_part_has_its_own_files(mnist, split, part, count):
    mnist("train", 7)
    mnist("t10k", 3)
    assert open_mnist([mnist.folder], split=split).describe() == f"{mnist.folder} ({part}-*): {count} samples"


@pytest.mark.parametrize("part", ["train", "t10k"])
@pytest.mark.parametrize(
    ("split", "words", "labels"), [("train", "first 80 %", [0, 1, 2, 3, 4, 5, 6, 7]), ("val", "last 20 %", [8, 9])]
)
def test_a_single_pair_is_split_in_80_and_20_percent(mnist, part, split, words, labels):
    mnist(part, 10)
    dataset = open_mnist([mnist.folder], split=split)
    assert (dataset.describe(), read(dataset, range(len(labels)))["labels"].tolist()) == (
        f"{mnist.folder} ({words} of {part}-*, the only files there): {len(labels)} samples",
        labels,
    )


def test_files_may_lie_where_torchvision_puts_them(mnist, tmp_path):
    mnist.folder = tmp_path / "MNIST" / "raw"
    mnist("train", 5)
    assert open_mnist([tmp_path]).sample_count == 4


def test_closing_twice_is_fine(mnist):
    mnist("train", 5)
    dataset = open_mnist([mnist.folder])
    dataset.close()
    dataset.close()
    assert read(dataset, [1])["labels"].tolist() == [1]


def pair(mnist, **changes):
    """Write a pair of files of two samples, one of them changed."""
    content = {"images": ((0x0803, 2, 28, 28), bytes(2 * 784)), "labels": ((0x0801, 2), bytes(2))} | changes
    mnist.file("train-images-idx3-ubyte", *content["images"])
    mnist.file("train-labels-idx1-ubyte", *content["labels"])


AGAIN = "\nhint: it is truncated or damaged; copy it again"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"labels": ((0x0803, 2), bytes(2))},
            "labels-idx1-ubyte: must begin with the magic number 0x00000801, got 0x00000803\n"
            "hint: it is not the file it claims",
        ),
        (
            {"images": ((0x0803, 2), b"")},
            "images-idx3-ubyte: header must have 16 bytes, got 8\nhint: copy the file again",
        ),
        (
            {"images": ((0x0803, 2, 28, 28), bytes(784))},
            f"images-idx3-ubyte: must hold 1,568 bytes after its header, got 784{AGAIN}",
        ),
        (
            {"images": ((0x0803, 2**32 - 1, 2**32 - 1, 2**32 - 1), b"")},
            f"images-idx3-ubyte: must hold {(2**32 - 1) ** 3:,} bytes after its header, got 0{AGAIN}",
        ),
        (
            {"images": ((0x0803, 2, 28, 14), bytes(784))},
            "images-idx3-ubyte: images must be 28 x 28 pixels, got 28 x 14",
        ),
        ({"labels": ((0x0801, 3), bytes(3))}, "labels-idx1-ubyte: must hold 2 labels, one for each image, got 3"),
        ({"labels": ((0x0801, 2), b"\x09\x0a")}, "labels-idx1-ubyte: labels must be in [0, 10), got 10 in sample 1"),
        (
            {"images": ((0x0803, 0, 28, 28), b""), "labels": ((0x0801, 0), b"")},
            "labels-idx1-ubyte: must hold at least one label, got 0",
        ),
    ],
    ids=["magic", "header", "truncated", "huge", "dimensions", "counts", "label", "empty"],
)
def test_a_damaged_file_is_refused_by_name(mnist, error_of, changes, expected):
    pair(mnist, **changes)
    assert error_of(mnist.folder, open_mnist, [mnist.folder]) == f"DIR/train-{expected}"


def test_a_pipe_keeps_nobody_waiting(mnist, error_of):
    mnist("train", 3)
    path = mnist.folder / "train-images-idx3-ubyte"
    path.unlink()
    os.mkfifo(path)
    assert error_of(mnist.folder, open_mnist, [mnist.folder]) == (
        "DIR/train-images-idx3-ubyte: must be a file of MNIST, got a pipe or a device\nhint: copy the file again"
    )


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-9], gzip.decompress, lambda content: content[:-8] + bytes(4) + content[-4:]],
    ids=["truncated", "not compressed", "wrong checksum"],
)
def test_a_gzip_file_that_is_not_whole_is_refused(mnist, error_of, damage):
    mnist("train", 3, compress=True)
    path = mnist.folder / "train-labels-idx1-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    assert error_of(mnist.folder, open_mnist, [mnist.folder]) == (
        "DIR/train-labels-idx1-ubyte.gz: must be a whole gzip file, got a truncated or damaged one\n"
        "hint: copy the file again"
    )


def test_images_without_labels_are_refused(mnist, error_of):
    mnist("train", 3)
    (mnist.folder / "train-labels-idx1-ubyte").unlink()
    assert error_of(mnist.folder, open_mnist, [mnist.folder]) == (
        "DIR: must hold train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz beside train-images-idx3-ubyte, "
        f"got neither\n{HINT}"
    )


@pytest.mark.parametrize(
    ("folders", "options", "expected"),
    [
        ([""], {}, f"DIR: must be a folder with {CONTENT}, got none among its entries (0)\n{HINT}"),
        (
            ["no"],
            {"tried": "/x/no, /y/no"},
            f"DIR/no: must be a folder with {CONTENT}, found nothing there (looked for it as /x/no, /y/no)\n{HINT}",
        ),
        (["", ""], {}, "data_dir: must be one folder for MNIST, got 2"),
        ([""], {"split": "test"}, "split: must be train or val, got test"),
    ],
)
def test_what_is_no_folder_of_digits_is_refused(tmp_path, error_of, folders, options, expected):
    paths = [tmp_path / folder for folder in folders]
    assert error_of(tmp_path, open_mnist, paths, **options) == expected


def test_an_unreadable_file_is_reported(mnist, error_of, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    mnist("train", 3)
    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    assert error_of(mnist.folder, open_mnist, [mnist.folder]) == (
        "DIR/train-images-idx3-ubyte: must be readable, got: Permission denied"
    )


def test_one_sample_cannot_be_split(mnist, error_of):
    mnist("train", 1)
    assert error_of(mnist.folder, open_mnist, [mnist.folder]) == (
        "DIR: must hold at least two samples to split in train and val, got 1"
    )
