"""Images: of folders, of CIFAR's files, through transforms, in patches."""

import numpy as np
import pytest
from PIL import Image

from cstool.model.params.sections.vision_loaders import TRANSFORMS
from cstool.training.data import PatchesDataset
from cstool.training.data.cifar import CIFAR10, CIFAR100, open_cifar
from cstool.training.data.image_folder import open_image_folder
from cstool.training.data.image_steps import ImageSteps
from tests.unit.training.data.encoder_files import InMemory, read, write_images


def steps(*transforms, seed=1) -> ImageSteps:
    return ImageSteps([TRANSFORMS[each["name"]].model_validate(each) for each in transforms], seed)


TO_TENSOR = {"name": "to_tensor"}
HALVES = {"name": "normalize", "mean": [0.5], "std": [0.25]}


@pytest.fixture
def cifar(tmp_path):
    """Two images in each file of CIFAR-10; their folder, and their bytes."""
    folder, rng = tmp_path / "cifar-10-batches-bin", np.random.default_rng(3)
    folder.mkdir()
    found = {}
    for name in (*CIFAR10.files["train"], *CIFAR10.files["val"]):
        records = rng.integers(0, 256, (2, 3073)).astype(np.uint8)
        records[:, 0] = rng.integers(0, 10, 2)
        (folder / name).write_bytes(records.tobytes())
        found[name] = records
    return folder, found


@pytest.fixture
def folder(tmp_path):
    """Images of two classes, of several formats and sizes."""
    write_images(tmp_path / "train", **{"n02/a.png": (9, 7), "n01/b.JPEG": (8, 8), "n01/a.png": (5, 12)})
    (tmp_path / "train" / "n01" / "notes.txt").write_text("no image")
    return tmp_path


def test_cifar_is_read_in_the_order_of_its_files_and_the_finer_class_of_cifar_100_counts(tmp_path, cifar):
    folder, records = cifar
    dataset = open_cifar(CIFAR10, [tmp_path], steps(TO_TENSOR), split="train")
    assert (dataset.sample_count, dataset.image_shape) == (10, (3, 32, 32))
    out = read(dataset, [3, 0])
    expected = np.stack([records["data_batch_2.bin"][1], records["data_batch_1.bin"][0]])
    np.testing.assert_array_equal(out["x"], (expected[:, 1:] / 255).astype(np.float32))
    np.testing.assert_array_equal(out["labels"], expected[:, 0])
    assert out["mask"] == [1, 1]
    for split in ("val", "test"):
        out = read(open_cifar(CIFAR10, [folder], steps(TO_TENSOR, HALVES), split=split), [1])
        pixels = (records["test_batch.bin"][1, 1:] / 255 - 0.5) / 0.25
        np.testing.assert_array_equal(out["x"][0], pixels.astype(np.float32))
    (tmp_path / "test.bin").write_bytes(bytes([3, 99, *[7] * 3072]))
    assert read(open_cifar(CIFAR100, [tmp_path], steps(TO_TENSOR), split="val"), [0])["labels"] == [99]


def test_what_is_wrong_with_files_of_cifar_is_said(tmp_path, cifar, error_of):
    def told(folders=(tmp_path,), **changes):
        asked = {"kind": CIFAR10, "folders": folders, "steps": steps(TO_TENSOR), "split": "train", **changes}
        return error_of(open_cifar, **asked).removeprefix("DIR/cifar-10-batches-bin")

    first, second = (cifar[0] / f"data_batch_{number}.bin" for number in (1, 2))
    first.write_bytes(bytes([5, *[0] * 3072]))
    rule = "classes must be in [0, 1), as the model has num_classes, got 5"
    assert told(classes=1) == f"/data_batch_1.bin: image 0: {rule}"
    second.write_bytes(bytes([11, *[0] * 3072]))
    rule = "classes must be in [0, 10), got 11\nhint: it is not a file of CIFAR-10"
    assert told() == f"/data_batch_2.bin: image 0: {rule}"
    second.write_bytes(b"12345")
    hint = "it is truncated or damaged, or of another kind; copy it again"
    assert told() == f"/data_batch_2.bin: must hold images of 3,073 bytes each, got 5 bytes\nhint: {hint}"
    second.unlink()
    rule = ": must hold data_batch_2.bin, which is not there\nhint:"
    assert told() == f"{rule} unpack the binary version of CIFAR-10 there"
    (cifar[0] / "batches.meta").touch()
    hint = "the version for Python is Python code to run; take the binary version, cifar-10-batches-bin"
    assert told() == f"{rule} {hint}"
    assert told([tmp_path, tmp_path]) == "data_dir: must be one folder for CIFAR-10, got 2"


def test_classes_of_a_folder_are_numbered_in_the_order_of_their_names(folder):
    dataset = open_image_folder([folder], steps({"name": "resize", "size": [4, 6]}, TO_TENSOR), split="train")
    names = [path.relative_to(folder / "train").as_posix() for path in dataset.files]
    assert names == ["n01/a.png", "n01/b.JPEG", "n02/a.png"]
    out = read(dataset, [2, 1, 0])
    assert (out["labels"], dataset.image_shape) == ([1, 0, 0], (3, 4, 6))
    with Image.open(folder / "train" / "n02" / "a.png") as image:
        expected = np.asarray(image.resize((6, 4), Image.Resampling.BILINEAR)).transpose(2, 0, 1) / 255
    np.testing.assert_array_equal(out["x"][0], expected.astype(np.float32).reshape(-1))


def test_what_is_wrong_with_folders_of_images_is_said(folder, error_of):
    def told(*more, split="train"):
        return error_of(open_image_folder, [folder], steps(*more, TO_TENSOR), split=split).removeprefix("DIR")

    assert error_of(read, open_image_folder([folder], steps(TO_TENSOR), split="train"), [0, 1]) == (
        "DIR/train/n01/b.JPEG: must be 5 x 12 in 3 channels, as the first one of its data set, got 8 x 8 in 3 "
        "channels\nhint: the transform resize, of a height and a width, makes them alike"
    )
    rule = "must be at least 6 x 6 pixels for random_crop, got 5 x 12"
    assert told({"name": "random_crop", "size": 6}) == f"/train/n01/a.png: {rule}"
    means = {"name": "normalize", "mean": [0.5, 0.5], "std": [1.0, 1.0]}
    rule = "must have as many channels as normalize has means (2), has 3"
    assert told(TO_TENSOR, means) == f"/train/n01/a.png: {rule}"
    (folder / "train" / "n01" / "a.png").write_bytes(b"no image")
    message = told()
    assert message.startswith("/train/n01/a.png: must be an image that can be read, got: ")
    assert message.endswith("\nhint: copy the file again")
    (folder / "train" / "n03").mkdir()
    assert told() == "/train/n03: must hold images of its class, got none among its entries (0)"
    hint = "train/CLASS/NAME.JPEG and val/CLASS/NAME.JPEG are such files"
    assert told(split="test") == f": must hold a folder test, which is not there\nhint: {hint}"


PIXELS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)


def made(number=0, epoch=0, seed=1, **transform):
    """The picture of 6 x 8 pixels through a transform."""
    return steps(transform, seed=seed).pixels(PIXELS, "x", number, epoch)


def test_crops_are_parts_drawn_anew_for_each_sample_and_epoch_and_the_same_again():
    def parts(**how):
        drawn = [(number, epoch) for number in range(4) for epoch in range(4)]
        return [made(*place, name="random_crop", size=[4, 4], **how).tobytes() for place in drawn]

    possible = {PIXELS[top : top + 4, left : left + 4].tobytes() for top in range(3) for left in range(5)}
    assert set(parts()) <= possible
    assert len(set(parts())) > 5
    assert parts() == parts() != parts(seed=2)


def test_padding_puts_zeros_around_and_pad_if_needed_as_many_as_are_missing():
    padded = np.pad(PIXELS, ((1, 1), (1, 1), (0, 0)))
    np.testing.assert_array_equal(made(name="random_crop", size=[8, 10], padding=1), padded)
    rows = [np.pad(PIXELS, ((1, 1), (0, 0), (0, 0)))[top : top + 7].tobytes() for top in (0, 1)]
    crops = {made(n, name="random_crop", size=[7, 8], pad_if_needed=True).tobytes() for n in range(20)}
    assert crops == set(rows)
    middle = made(name="center_crop", size=[4, 10])
    np.testing.assert_array_equal(middle, np.pad(PIXELS[1:5], ((0, 0), (1, 1), (0, 0))))


def test_flips_turn_about_half_of_the_images_over():
    for name, flipped in (("random_horizontal_flip", PIXELS[:, ::-1]), ("random_vertical_flip", PIXELS[::-1])):
        found = [made(number, name=name).tobytes() for number in range(200)]
        assert set(found) == {PIXELS.tobytes(), flipped.tobytes()}
        assert 60 < found.count(flipped.tobytes()) < 140
        np.testing.assert_array_equal(made(5, name=name, p=1.0), flipped)


@pytest.mark.parametrize(("size", "expected"), [(3, (3, 4)), ([3, 5], (3, 5)), ([12], (12, 16)), (6, (6, 8))], ids=str)
def test_one_number_is_the_shorter_side_of_what_is_resized(size, expected):
    assert made(name="resize", size=size).shape == (*expected, 3)


def test_a_resized_crop_of_the_whole_image_is_the_image_resized():
    whole = made(name="random_resized_crop", size=[3, 4], scale=[1.0, 1.0], ratio=[8 / 6, 8 / 6])
    np.testing.assert_array_equal(whole, made(name="resize", size=[3, 4]))
    assert len({made(number, name="random_resized_crop", size=5).tobytes() for number in range(9)}) > 6
    # No part of the ratio asked for fits: the middle of the nearest ratio is taken.
    narrow = made(name="random_resized_crop", size=[6, 3], scale=[1.0, 1.0], ratio=[0.5, 0.5])
    np.testing.assert_array_equal(narrow, PIXELS[:, 2:5])


def two() -> InMemory:
    """Two images of 4 x 6 pixels in two channels, whose numbers say where they are."""
    pixels, ones = np.arange(2)[:, None] * 1000 + np.arange(48), np.ones(2, np.float32)
    made = InMemory("here: 2 samples", x=pixels.astype(np.float32), labels=np.arange(2, dtype=np.int32), mask=ones)
    made.image_shape = (2, 4, 6)
    return made


@pytest.mark.parametrize("by_channel", [True, False])
def test_patches_follow_row_by_row_and_hold_their_pixels_by_channel_or_pixel(by_channel):
    inner = two()
    dataset = PatchesDataset(inner, (2, 4, 6), (2, 3), by_channel)
    assert dataset.fields["patches"].shape == (4, 12)
    out = read(dataset, [1, 0])
    image = 1000 + np.arange(48).reshape(2, 4, 6)
    patch = image[:, 2:4, 0:3]  # the third: of the second row the first
    expected = patch.reshape(-1) if by_channel else patch.transpose(1, 2, 0).reshape(-1)
    assert out["patches"][0][2] == expected.tolist()
    assert (out["labels"], out["mask"]) == ([1, 0], [1, 1])
    dataset.close()
    assert inner.closed == 1


def test_images_of_another_size_than_the_model_has_are_refused(error_of):
    rule = "the images must be 28 x 28 in 1 channel, as the image_size and num_channels of the model say"
    assert error_of(PatchesDataset, two(), (1, 28, 28), (7, 7), True) == f"here: {rule}, got 4 x 6 in 2 channels"
