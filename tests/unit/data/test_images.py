"""Images: of folders, of CIFAR's files, through transforms, in patches."""

import numpy as np
import pytest
from PIL import Image

from cstool.data import PatchesDataset
from cstool.data.cifar import CIFAR10, CIFAR100, open_cifar
from cstool.data.dataset import Field, allocate
from cstool.data.image_folder import open_image_folder
from cstool.data.image_steps import ImageSteps
from cstool.errors import DataError
from cstool.params.sections.vision_loaders import TRANSFORMS


def steps(*transforms, seed=1) -> ImageSteps:
    return ImageSteps([TRANSFORMS[each["name"]].model_validate(each) for each in transforms], seed)


TO_TENSOR = {"name": "to_tensor"}
HALVES = {"name": "normalize", "mean": [0.5], "std": [0.25]}


def read(dataset, *indices, epoch=0):
    out = allocate(dataset.fields, len(indices))
    dataset.read(np.array(indices), out, epoch)
    return out


def message(call, *arguments, **keywords) -> tuple[str, str | None]:
    with pytest.raises(DataError) as caught:
        call(*arguments, **keywords)
    return caught.value.message, caught.value.hint


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.fixture
def cifar(tmp_path, rng):
    """Two images in each file of CIFAR-10, and their bytes."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    found = {}
    for name in (*CIFAR10.files["train"], *CIFAR10.files["val"]):
        records = rng.integers(0, 256, (2, 3073)).astype(np.uint8)
        records[:, 0] = rng.integers(0, 10, 2)
        (folder / name).write_bytes(records.tobytes())
        found[name] = records
    return tmp_path, found


@pytest.fixture
def folder(tmp_path, rng):
    """Images of two classes, of several formats and sizes."""
    for name, size in [("n02/a.png", (9, 7)), ("n01/b.JPEG", (8, 8)), ("n01/a.png", (5, 12))]:
        path = tmp_path / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*size, 3)).astype(np.uint8)).save(path)
    (tmp_path / "train" / "n01" / "notes.txt").write_text("no image")
    return tmp_path


def test_cifar_is_read_in_the_order_of_its_files(cifar):
    folder, records = cifar
    dataset = open_cifar(CIFAR10, [folder], steps(TO_TENSOR), split="train")
    assert (dataset.sample_count, dataset.image_shape) == (10, (3, 32, 32))
    out = read(dataset, 3, 0)
    expected = np.stack([records["data_batch_2.bin"][1], records["data_batch_1.bin"][0]])
    np.testing.assert_array_equal(out["x"], (expected[:, 1:] / 255).astype(np.float32))
    np.testing.assert_array_equal(out["labels"], expected[:, 0])
    assert out["mask"].tolist() == [1, 1]


def test_the_held_out_part_is_called_val_or_test(cifar):
    folder, records = cifar
    for split in ("val", "test"):
        out = read(open_cifar(CIFAR10, [folder / "cifar-10-batches-bin"], steps(TO_TENSOR, HALVES), split=split), 1)
        pixels = (records["test_batch.bin"][1, 1:] / 255 - 0.5) / 0.25
        np.testing.assert_array_equal(out["x"][0], pixels.astype(np.float32))


def test_the_finer_class_of_cifar_100_counts(tmp_path):
    (tmp_path / "test.bin").write_bytes(bytes([3, 99, *[7] * 3072]))
    assert read(open_cifar(CIFAR100, [tmp_path], steps(TO_TENSOR), split="val"), 0)["labels"].tolist() == [99]


def test_what_is_wrong_with_files_of_cifar_is_said(cifar, tmp_path):
    folder, _ = cifar
    inner = folder / "cifar-10-batches-bin"
    opened = {"kind": CIFAR10, "folders": [folder], "steps": steps(TO_TENSOR), "split": "train"}
    rule = f"{inner}/data_batch_1.bin: image 0: classes must be in [0, 1), as the model has num_classes, got "
    (inner / "data_batch_1.bin").write_bytes(bytes([5, *[0] * 3072]))
    assert message(open_cifar, **opened, classes=1) == (f"{rule}5", None)
    (inner / "data_batch_2.bin").write_bytes(bytes([11, *[0] * 3072]))
    rule = f"{inner}/data_batch_2.bin: image 0: classes must be in [0, 10), got 11"
    assert message(open_cifar, **opened) == (rule, "it is not a file of CIFAR-10")
    (inner / "data_batch_2.bin").write_bytes(b"12345")
    rule = f"{inner}/data_batch_2.bin: must hold images of 3,073 bytes each, got 5 bytes"
    assert message(open_cifar, **opened) == (rule, "it is truncated or damaged, or of another kind; copy it again")
    (inner / "data_batch_2.bin").unlink()
    rule = f"{inner}: must hold data_batch_2.bin, which is not there"
    assert message(open_cifar, **opened) == (rule, "unpack the binary version of CIFAR-10 there")
    (inner / "batches.meta").touch()
    hint = "the version for Python is Python code to run; take the binary version, cifar-10-batches-bin"
    assert message(open_cifar, **opened) == (rule, hint)
    assert message(open_cifar, **{**opened, "folders": [folder, folder]})[0] == (
        "data_dir: must be one folder for CIFAR-10, got 2"
    )


def test_classes_of_a_folder_are_numbered_in_the_order_of_their_names(folder):
    dataset = open_image_folder([folder], steps({"name": "resize", "size": [4, 6]}, TO_TENSOR), split="train")
    assert [path.relative_to(folder).as_posix() for path in dataset.files] == [
        "train/n01/a.png",
        "train/n01/b.JPEG",
        "train/n02/a.png",
    ]
    out = read(dataset, 2, 1, 0)
    assert (out["labels"].tolist(), dataset.image_shape) == ([1, 0, 0], (3, 4, 6))
    with Image.open(folder / "train" / "n02" / "a.png") as image:
        expected = np.asarray(image.resize((6, 4), Image.Resampling.BILINEAR)).transpose(2, 0, 1) / 255
    np.testing.assert_array_equal(out["x"][0], expected.astype(np.float32).reshape(-1))


def test_what_is_wrong_with_folders_of_images_is_said(folder):
    opened = {"folders": [folder], "steps": steps(TO_TENSOR), "split": "train"}
    dataset = open_image_folder(**opened)
    rule = f"{folder}/train/n01/b.JPEG: must be 5 x 12 in 3 channels, as the first one of its data set, "
    rule += "got 8 x 8 in 3 channels"
    hint = "the transform resize, of a height and a width, makes them alike"
    assert message(read, dataset, 0, 1) == (rule, hint)
    crop = steps({"name": "random_crop", "size": 6}, TO_TENSOR)
    rule = f"{folder}/train/n01/a.png: must be at least 6 x 6 pixels for random_crop, got 5 x 12"
    assert message(open_image_folder, **{**opened, "steps": crop}) == (rule, None)
    means = steps(TO_TENSOR, {"name": "normalize", "mean": [0.5, 0.5], "std": [1.0, 1.0]})
    rule = f"{folder}/train/n01/a.png: must have as many channels as normalize has means (2), has 3"
    assert message(open_image_folder, **{**opened, "steps": means}) == (rule, None)
    (folder / "train" / "n01" / "a.png").write_bytes(b"no image")
    found, hint = message(open_image_folder, **opened)
    assert found.startswith(f"{folder}/train/n01/a.png: must be an image that can be read, got: ")
    assert hint == "copy the file again"
    (folder / "train" / "n03").mkdir()
    rule = f"{folder}/train/n03: must hold images of its class, got none among its entries (0)"
    assert message(open_image_folder, **opened) == (rule, None)
    hint = "train/CLASS/NAME.JPEG and val/CLASS/NAME.JPEG are such files"
    assert message(open_image_folder, **{**opened, "split": "test"}) == (
        f"{folder}: must hold a folder test, which is not there",
        hint,
    )


def pixels(size=(6, 8), channels=3):
    return np.arange(size[0] * size[1] * channels, dtype=np.uint8).reshape(*size, channels)


def test_crops_are_parts_drawn_anew_for_each_sample_and_epoch_and_the_same_again():
    crop = steps({"name": "random_crop", "size": [4, 4]})
    found = {
        (number, epoch): crop.pixels(pixels(), "x", number, epoch).tobytes()
        for number in range(4)
        for epoch in range(4)
    }
    parts = {pixels()[top : top + 4, left : left + 4].tobytes() for top in range(3) for left in range(5)}
    assert set(found.values()) <= parts
    assert len(set(found.values())) > 5
    again = steps({"name": "random_crop", "size": [4, 4]})
    assert all(again.pixels(pixels(), "x", *key).tobytes() == part for key, part in found.items())
    other = steps({"name": "random_crop", "size": [4, 4]}, seed=2)
    assert any(other.pixels(pixels(), "x", *key).tobytes() != part for key, part in found.items())


def test_padding_puts_zeros_around_and_pad_if_needed_as_many_as_are_missing():
    padded = np.pad(pixels(), ((1, 1), (1, 1), (0, 0)))
    crop = steps({"name": "random_crop", "size": [8, 10], "padding": 1})
    np.testing.assert_array_equal(crop.pixels(pixels(), "x", 0, 0), padded)
    crop = steps({"name": "random_crop", "size": [7, 8], "pad_if_needed": True})
    rows = [np.pad(pixels(), ((1, 1), (0, 0), (0, 0)))[top : top + 7].tobytes() for top in (0, 1)]
    assert {crop.pixels(pixels(), "x", n, 0).tobytes() for n in range(20)} == set(rows)


def test_flips_turn_about_half_of_the_images_over():
    for name, flipped in (("horizontal", pixels()[:, ::-1]), ("vertical", pixels()[::-1])):
        flip = steps({"name": f"random_{name}_flip"})
        found = [flip.pixels(pixels(), "x", number, 0) for number in range(200)]
        turned = [image for image in found if np.array_equal(image, flipped)]
        assert 60 < len(turned) < 140
        assert all(np.array_equal(image, pixels()) for image in found if not np.array_equal(image, flipped))
        always = steps({"name": f"random_{name}_flip", "p": 1.0})
        np.testing.assert_array_equal(always.pixels(pixels(), "x", 5, 0), flipped)


@pytest.mark.parametrize(("size", "expected"), [(3, (3, 4)), ([3, 5], (3, 5)), ([12], (12, 16)), (6, (6, 8))], ids=str)
def test_one_number_is_the_shorter_side_of_what_is_resized(size, expected):
    made = steps({"name": "resize", "size": size}).pixels(pixels(), "x", 0, 0)
    assert made.shape == (*expected, 3)


def test_the_middle_is_cut_out_and_zeros_stand_around_what_is_smaller():
    made = steps({"name": "center_crop", "size": [4, 10]}).pixels(pixels(), "x", 0, 0)
    np.testing.assert_array_equal(made, np.pad(pixels()[1:5], ((0, 0), (1, 1), (0, 0))))


def test_a_resized_crop_of_the_whole_image_is_the_image_resized():
    whole = {"name": "random_resized_crop", "size": [3, 4], "scale": [1.0, 1.0], "ratio": [8 / 6, 8 / 6]}
    resized = steps({"name": "resize", "size": [3, 4]}).pixels(pixels(), "x", 0, 0)
    np.testing.assert_array_equal(steps(whole).pixels(pixels(), "x", 0, 0), resized)
    crop = steps({"name": "random_resized_crop", "size": 5})
    found = {crop.pixels(pixels(), "x", number, 0).tobytes() for number in range(9)}
    assert len(found) > 6
    # No part of the ratio asked for fits: the middle of the nearest ratio is taken.
    narrow = {"name": "random_resized_crop", "size": [6, 3], "scale": [1.0, 1.0], "ratio": [0.5, 0.5]}
    np.testing.assert_array_equal(steps(narrow).pixels(pixels(), "x", 0, 0), pixels()[:, 2:5])


class Two:
    """Two images of 4 x 6 pixels in two channels, whose numbers say where they are."""

    image_shape = (2, 4, 6)
    sample_count = 2

    def __init__(self):
        self.fields = {"x": Field((48,), "float32"), "labels": Field((), "int32"), "mask": Field((), "float32")}
        self.is_closed = False

    def describe(self):
        return "here: 2 samples"

    def read(self, indices, out, _epoch=0):
        out["x"][...] = indices[:, None] * 1000 + np.arange(48)
        out["labels"][...] = indices
        out["mask"][...] = 1

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize("by_channel", [True, False])
def test_patches_follow_row_by_row_and_hold_their_pixels_by_channel_or_pixel(by_channel):
    inner = Two()
    dataset = PatchesDataset(inner, (2, 4, 6), (2, 3), by_channel)
    assert dataset.fields["patches"].shape == (4, 12)
    out = read(dataset, 1, 0)
    image = 1000 + np.arange(48).reshape(2, 4, 6)
    patch = image[:, 2:4, 0:3]  # the third: of the second row the first
    expected = patch.reshape(-1) if by_channel else patch.transpose(1, 2, 0).reshape(-1)
    assert out["patches"][0, 2].tolist() == expected.tolist()
    assert (out["labels"].tolist(), out["mask"].tolist()) == ([1, 0], [1, 1])
    dataset.close()
    assert inner.is_closed


def test_images_of_another_size_than_the_model_has_are_refused():
    rule = "here: the images must be 28 x 28 in 1 channel, as the image_size and num_channels of the model say, "
    rule += "got 4 x 6 in 2 channels"
    assert message(PatchesDataset, Two(), (1, 28, 28), (7, 7), True) == (rule, None)
