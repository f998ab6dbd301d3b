"""What `info` and `check` say of folders that somebody else made."""

import h5py
import numpy as np
import pytest

from cstool.training.data import DataInfo, check_data, data_info, open_part
from cstool.training.data.preferences import FEATURES
from tests.unit.training.data import (
    test_drawn_masks,
    test_hdf5_contexts,
    test_hdf5_masks,
    test_masked_text,
    test_summaries,
    test_token_classes,
)
from tests.unit.training.data.encoder_files import (
    change,
    findings,
    read,
    write_h5,
    write_images,
    write_masks,
    write_rows,
)
from tests.unit.training.data.made import write_files
from tests.unit.training.data.test_sentences import PAIRS, write_table

KINDS = {
    "CSV, masked as it is read": (
        *(test_masked_text.COLUMNS, test_masked_text.ROWS, 10, 23, ["[]x", "[]", 0]),
        "tokens must be a list of texts, such as ['a', 'b'], got '[]x'",
    ),
    "CSV with masks": (
        *(test_drawn_masks.PAIRS, [test_drawn_masks.ONE, test_drawn_masks.TWO], 5, 9),
        *("[1] [1] [2,3] [1] [0] [0] 0".split(), "labels must have 1 value, one for each position, got 2"),
    ),
    "CSV of texts to summarize": (
        *(test_summaries.COLUMNS, [test_summaries.ONE, test_summaries.TWO], 10, 13),
        *("[1] [1,0] [0] [0]".split(), "labels must have 1 value, one for each [CLS], got 2"),
    ),
    "CSV of tokens with classes": (
        *(("tokens", "labels"), test_token_classes.ROWS, 6, 9, ["a b", "O"]),
        "labels must have 2 values, one for each token, got 1",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_told_by_their_columns_and_of_each_file_the_first_wrong_row(tmp_path, kind):
    columns, rows, longest, tokens, bad, message = KINDS[kind]
    write_rows(tmp_path / "train", "a.csv", columns, rows)
    write_rows(tmp_path / "dev", "a.csv", columns, rows[:1])
    info, check = data_info(tmp_path), check_data(tmp_path)
    assert (info.format, info.sequence_length, [*info.parts]) == (kind, longest, ["dev", "train"])
    part = info.parts["train"]
    assert (part.files, part.samples, part.tokens, part.padding) == (1, len(rows), tokens, None)
    assert data_info(tmp_path / "train").parts == {"train": part}
    assert (check.findings, check.samples, check.files) == ([], len(rows) + 1, 2)
    write_rows(tmp_path / "train", "a.csv", columns, [rows[0], bad, rows[0], bad, bad])
    write_rows(tmp_path / "train", "b.csv", columns, [bad])
    found = findings(tmp_path, top=tmp_path / "train")
    assert found == [f"DIR/a.csv:3: {message}, and 2 more rows", f"DIR/b.csv:2: {message}"]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("input_ids", "[2, 50, 6, 3, 0]", "input_ids must be in [0, 50), got 50"),
        ("labels", "[50, 0]", "labels must be below 50, got 50"),
        ("masked_lm_weights", "[1]", "masked_lm_weights must have 2 values, one for each position, got 1"),
        ("token_type_ids", "[0, 0, 2, 0, 0]", "token_type_ids must be in [0, 2), got 2"),
        ("next_sentence_label", "7", "next_sentence_label must be in [0, 2), got 7"),
    ],
)
def test_all_that_a_run_reads_of_drawn_masks_is_checked(tmp_path, column, value, message):
    columns, row = test_drawn_masks.PAIRS, test_drawn_masks.ONE
    place = columns.index(column)
    write_rows(tmp_path, "a.csv", columns, [row, [*row[:place], value, *row[place + 1 :]]])
    assert findings(tmp_path, top=tmp_path, vocab_size=50) == [f"DIR/a.csv:3: {message}"]


def test_pairs_of_files_are_not_taken_for_one(tmp_path, error_of):
    write_files(tmp_path, **{"a.en": "w1 w2\n", "a.de": "w1 w2\n", "meta.dat": "a.en a.de 1\n"})
    rule = "must list one file on each line, got the pair a.en and a.de"
    assert check_data(tmp_path).findings == [f"{tmp_path}/meta.dat: {rule}"]
    hint = "a run reads pairs of files, and checks them as it does"
    assert error_of(data_info, tmp_path) == f"DIR/meta.dat: {rule}\nhint: {hint}"


def test_tables_of_glue_are_told(tmp_path):
    columns = ["sentence1", "sentence2", "gold_label"]
    for name in ("train", "dev_matched", "dev_mismatched"):
        write_table(tmp_path, f"{name}.tsv", columns, PAIRS)
    info = data_info(tmp_path)
    assert (info.format, {name: part.samples for name, part in info.parts.items()}) == ("MNLI", {"train": 2, "val": 4})
    assert check_data(tmp_path).samples == 6
    write_table(tmp_path, "train.tsv", columns, [*PAIRS, ("a", "b", "c")])
    rule = "gold_label must be entailment, neutral, contradiction, got 'c'"
    assert check_data(tmp_path).findings == [f"{tmp_path}/train.tsv:4: {rule}"]


@pytest.mark.parametrize("data", [test_hdf5_masks.DATA, test_hdf5_masks.PACKED])
def test_hdf5_with_masks_is_told(tmp_path, data):
    train = tmp_path / "train"
    write_masks(train / "a.h5", data, test_hdf5_masks.LABELS)
    info = data_info(tmp_path)
    assert (info.format, info.sequence_length, info.parts["train"].tokens) == ("HDF5 with masks", 6, 10)
    assert check_data(tmp_path).findings == []
    assert read(open_part(tmp_path, "train"), [0, 1]) == test_hdf5_masks.EXPECTED
    wrong = np.array(data)
    wrong[1, 1, 0] = 5
    write_masks(train / "b.h5", wrong, test_hdf5_masks.LABELS)
    (train / "c.h5").write_bytes(b"half")
    assert check_data(tmp_path, vocab_size=9).findings == [
        f"{train}/b.h5: sample 1: attention_mask must be in [0, 2), got 5 at position 0",
        f"{train}/c.h5: must be an HDF5 file, got something else",
    ]


def test_samples_that_need_a_vocabulary_are_not_read_without_one(tmp_path, error_of):
    write_rows(tmp_path / "train", "a.csv", ("tokens", "labels"), test_token_classes.ROWS)
    assert error_of(open_part, tmp_path, "train") == (
        "DIR/train: samples of CSV of tokens with classes are made with a vocabulary, which the folder does not name\n"
        "hint: `cstool data info` and `cstool data check` look at its rows"
    )


def test_other_tables_are_refused_with_the_kinds_there_are(tmp_path, error_of):
    write_rows(tmp_path, "a.csv", ["x"], [["1"]])
    assert error_of(data_info, tmp_path) == (
        "DIR/a.csv: must have the columns of a known kind of data, got x\n"
        "hint: CSV with masks: input_ids, attention_mask, labels; CSV of texts to summarize: input_token_ids, labels, "
        "segment_ids, cls_indices; CSV of tokens with classes: tokens, labels; CSV, masked as it is read: tokens"
    )


# Preferences, questions with contexts, and images in files.


LENGTH = 6


def write_preferences(folder, name="a.h5", *, count=3, length=LENGTH):
    """Write pairs with a prompt of two tokens, an answer of two, and padding; return their path."""
    pairs = np.zeros((count, len(FEATURES), length), np.int32)
    pairs[:, ::3, :4] = np.arange(5, 9)
    pairs[:, 2::3, 1:3] = [7, 8]
    pairs[:, 1::3, 1:3] = 1
    return write_h5(folder / name, count, data=pairs)


def test_preferences_are_told_by_their_features_and_what_is_wrong_for_each_file(tmp_path):
    write_preferences(tmp_path / "train")
    write_preferences(tmp_path / "val", count=2)
    info, check = data_info(tmp_path), check_data(tmp_path)
    part = info.parts["train"]
    assert (info.format, info.sequence_length, info.contexts) == ("HDF5 of preferences", LENGTH, None)
    assert (info.first_tokens, part.files, part.samples, part.tokens, part.padding) == ([5, 6, 7], 1, 3, 12, None)
    assert (check.findings, check.samples, check.files) == ([], 5, 2)
    assert read(open_part(tmp_path, "val"), [1])["mask"] == [[1.0]]
    train = tmp_path / "train"
    change(train / "a.h5", (1, 3, 2), 9)
    change(write_preferences(train, "b.h5"), (2, 1), 0)
    write_preferences(train, "c.h5", length=LENGTH + 2)
    assert findings(train, top=train, vocab_size=9) == [
        "DIR/a.h5: rejected_input_ids must be in [0, 9), got 9 in sample 1 at position 2",
        "DIR/b.h5: chosen_attention_mask must be 1 where a label counts, got none in sample 2",
        "DIR/c.h5: texts must have 6 tokens, as in DIR/a.h5, got 8",
    ]
    write_h5(train / "d.h5", data=h5py.ExternalLink(train / "a.h5", "data"))  # is not followed
    rule = 'dataset "data" must be in the file itself, it is a link to another'
    assert findings(train, top=train)[-1] == f"DIR/d.h5: {rule}"


def test_questions_with_contexts_are_told_by_their_axes_and_what_is_wrong_for_each_file(tmp_path):
    tables = test_hdf5_contexts.write(tmp_path / "train")
    info = data_info(tmp_path)
    assert (info.format, info.sequence_length) == ("HDF5 of questions with contexts", 4)
    assert info.contexts == {"count": 2, "tokens": 5}
    counted = sum(int(table[:, 1].sum()) for table in tables.values())
    part = info.parts["train"]
    assert (part.samples, part.tokens, part.padding) == (3, counted, 1 - counted / (3 * (4 + 2 * 5)))
    assert check_data(tmp_path).findings == []
    assert read(open_part(tmp_path, "train"), [2])["questions_input_ids"] == [tables["data_0"][2, 0].tolist()]
    train = tmp_path / "train"
    test_hdf5_contexts.write(train, "b.h5")
    change(train / "a.h5", (0, 0, 1, 3), -1, "data_1")
    (train / "c.h5").write_bytes(b"half")
    assert findings(train, top=train, vocab_size=6) == [
        "DIR/a.h5: sample 0: ctx_input_ids must be in [0, 6), got -1 at position 3",
        "DIR/c.h5: must be an HDF5 file, got something else",
    ]
    (train / "data_params.json").unlink()
    assert {*findings(train, top=train)} == {"DIR: must hold data_params.json, found nothing there"}


def test_images_are_counted_by_class_not_read_without_transforms_and_what_is_wrong_is_told(tmp_path, error_of):
    """Images of two classes in two parts, in three formats."""
    names = "train/n01/a.png", "train/n01/b.JPEG", "train/n02/c.bmp", "val/n01/a.png", "val/n02/a.png"
    write_images(tmp_path, **dict.fromkeys(names, (5, 7)))
    (tmp_path / "train" / "n02" / "notes.txt").write_text("no image")
    images = tmp_path
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
    cut, first, second = (images / name for name in ("train/n02/c.bmp", "val/n01/a.png", "val/n02"))
    cut.write_bytes(cut.read_bytes()[:60])
    first.write_text("no image")
    second.rename(images / "val" / "n03")
    rule = "must have folders for the classes of train, which are numbered by their order"
    image = "must be an image that can be read, got:"
    assert findings(images, top=images) == [
        f"DIR/val: {rule}, lacks n02 and has besides n03",
        f"DIR/train/n02/c.bmp: {image} image file is truncated (6 bytes not processed)",
        f"DIR/val/n01/a.png: {image} cannot identify image file 'DIR/val/n01/a.png'",
    ]
    (images / "val" / "n03").rename(second)
    (second / "a.png").unlink()
    rule = "must hold images of its class, got none among its entries (0)"
    assert findings(images, top=images)[0] == f"DIR/val/n02: {rule}"
