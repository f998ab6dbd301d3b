"""What `info` and `check` say of preferences, of questions with contexts, and of images in files."""

import h5py
import numpy as np
import pytest
from PIL import Image

from cstool.data import DataInfo, check_data, data_info, open_part
from cstool.data.preferences import FEATURES
from tests.unit.data import test_hdf5_contexts
from tests.unit.data.encoder_files import read

LENGTH = 6


def write_preferences(folder, name="a.h5", *, count=3, length=LENGTH):
    """Write pairs with a prompt of two tokens, an answer of two, and padding; return their path."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = np.zeros((count, len(FEATURES), length), np.int32)
    pairs[:, ::3, :4] = np.arange(5, 9)
    pairs[:, 2::3, 1:3] = [7, 8]
    pairs[:, 1::3, 1:3] = 1
    with h5py.File(folder / name, "w") as file:
        file["data"] = pairs
        file.attrs["n_examples"] = count
    return folder / name


def change(path, name, place, value):
    with h5py.File(path, "r+") as file:
        file[name][place] = value


def findings(folder, **arguments):
    return [finding.replace(str(folder), "DIR") for finding in check_data(folder, **arguments).findings]


def test_preferences_are_told_by_their_features(tmp_path):
    write_preferences(tmp_path / "train")
    write_preferences(tmp_path / "val", count=2)
    info, check = data_info(tmp_path), check_data(tmp_path)
    part = info.parts["train"]
    assert (info.format, info.sequence_length, info.contexts) == ("HDF5 of preferences", LENGTH, None)
    assert (info.first_tokens, part.files, part.samples, part.tokens, part.padding) == ([5, 6, 7], 1, 3, 12, None)
    assert (check.findings, check.samples, check.files) == ([], 5, 2)
    assert read(open_part(tmp_path, "val"), [1])["mask"] == [[1.0]]


def test_what_is_wrong_with_preferences_is_said_for_each_file(tmp_path):
    change(write_preferences(tmp_path), "data", (1, 3, 2), 9)
    change(write_preferences(tmp_path, "b.h5"), "data", (2, 1), 0)
    write_preferences(tmp_path, "c.h5", length=LENGTH + 2)
    assert findings(tmp_path, vocab_size=9) == [
        "DIR/a.h5: rejected_input_ids must be in [0, 9), got 9 in sample 1 at position 2",
        "DIR/b.h5: chosen_attention_mask must be 1 where a label counts, got none in sample 2",
        "DIR/c.h5: texts must have 6 tokens, as in DIR/a.h5, got 8",
    ]
    with h5py.File(tmp_path / "d.h5", "w") as file:  # is not followed
        file["data"] = h5py.ExternalLink(tmp_path / "a.h5", "data")
    rule = 'dataset "data" must be in the file itself, it is a link to another'
    assert findings(tmp_path)[-1] == f"DIR/d.h5: {rule}"


def test_questions_with_contexts_are_told_by_their_axes(tmp_path):
    tables = test_hdf5_contexts.write(tmp_path / "train")
    info = data_info(tmp_path)
    assert (info.format, info.sequence_length) == ("HDF5 of questions with contexts", 4)
    assert info.contexts == {"count": 2, "tokens": 5}
    counted = sum(int(table[:, 1].sum()) for table in tables.values())
    part = info.parts["train"]
    assert (part.samples, part.tokens, part.padding) == (3, counted, 1 - counted / (3 * (4 + 2 * 5)))
    assert check_data(tmp_path).findings == []
    assert read(open_part(tmp_path, "train"), [2])["questions_input_ids"] == [tables["data_0"][2, 0].tolist()]


def test_what_is_wrong_with_contexts_is_said_for_each_file(tmp_path):
    test_hdf5_contexts.write(tmp_path)
    test_hdf5_contexts.write(tmp_path, "b.h5")
    change(tmp_path / "a.h5", "data_1", (0, 0, 1, 3), -1)
    (tmp_path / "c.h5").write_bytes(b"half")
    assert findings(tmp_path, vocab_size=6) == [
        "DIR/a.h5: sample 0: ctx_input_ids must be in [0, 6), got -1 at position 3",
        "DIR/c.h5: must be an HDF5 file, got something else",
    ]
    (tmp_path / "data_params.json").unlink()
    assert {*findings(tmp_path)} == {"DIR: must hold data_params.json, found nothing there"}


@pytest.fixture
def images(tmp_path):
    """Images of two classes in two parts, in three formats."""
    rng = np.random.default_rng(1)
    for name in ("train/n01/a.png", "train/n01/b.JPEG", "train/n02/c.bmp", "val/n01/a.png", "val/n02/a.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (5, 7, 3)).astype(np.uint8)).save(path)
    (tmp_path / "train" / "n02" / "notes.txt").write_text("no image")
    return tmp_path


def test_images_are_counted_by_class_and_not_read_without_transforms(images, error_of):
    info, told = data_info(images), []
    assert info == DataInfo(images, "images in files", info.parts)
    train, val = info.parts["train"], info.parts["val"]
    assert (train.files, train.samples, train.classes, train.class_names) == (3, 3, [2, 1], ["n01", "n02"])
    assert (val.files, val.classes, val.tokens) == (2, [1, 1], None)
    assert train.size_bytes == sum(path.stat().st_size for path in (images / "train").glob("n0*/[abc].*"))
    check = check_data(images, progress=lambda *state: told.append(state))
    assert (check.findings, check.samples, check.files) == ([], 5, 5)
    assert told[-1] == (check.size_bytes, train.size_bytes + val.size_bytes)
    assert error_of(open_part, images, "train") == (
        "DIR/train: images are read through the transforms of a dataloader\n"
        "hint: `cstool data info` and `cstool data check` look at them"
    )


def test_what_is_wrong_with_images_is_said_for_each(images):
    cut, first, second = (images / name for name in ("train/n02/c.bmp", "val/n01/a.png", "val/n02"))
    cut.write_bytes(cut.read_bytes()[:60])
    first.write_text("no image")
    second.rename(images / "val" / "n03")
    rule = "must have folders for the classes of train, which are numbered by their order"
    image = "must be an image that can be read, got:"
    assert findings(images) == [
        f"DIR/val: {rule}, lacks n02 and has besides n03",
        f"DIR/train/n02/c.bmp: {image} image file is truncated (6 bytes not processed)",
        f"DIR/val/n01/a.png: {image} cannot identify image file 'DIR/val/n01/a.png'",
    ]
    (images / "val" / "n03").rename(second)
    (second / "a.png").unlink()
    assert findings(images)[0] == "DIR/val/n02: must hold images of its class, got none among its entries (0)"
