"""Texts with a class for each token."""

import json

import pytest

from cstool.data.token_classes import open_token_classes
from tests.unit.data.encoder_files import WORDS, read, shapes, write_rows, write_vocabulary

ROWS = [["[CLS] the cat ##s sat [SEP]", "[CLS] O B X O [SEP]"], ["a whale .", "O B O"]]
NUMBERS = {"[PAD]": 0, "B": 1, "I": 2, "O": 3, "X": 4, "[CLS]": 5, "[SEP]": 6}
HINT = 'hint: it gives each label its number: {"O": 0, "B": 1}'


@pytest.fixture
def opened(tmp_path):
    def call(rows=ROWS, columns=("tokens", "labels"), numbers=None, **changes):
        folder = tmp_path / "data"
        write_rows(folder, "a.csv", columns, rows)
        (tmp_path / "label2id.json").write_text(json.dumps(NUMBERS if numbers is None else numbers))
        vocabulary = write_vocabulary(tmp_path, changes.pop("words", WORDS))
        labels = changes.pop("labels", tmp_path / "label2id.json")
        return open_token_classes([folder], vocabulary, labels, **{"max_sequence_length": 7, **changes})

    return call


def test_each_token_has_its_class(opened):
    dataset = opened()
    assert shapes(dataset) == {
        **dict.fromkeys(("input_ids", "token_type_ids", "attention_mask", "labels"), ((7,), "int32")),
        "mask": ((7,), "float32"),
    }
    assert read(dataset, [1, 0]) == {
        "input_ids": [[10, 1, 12, 0, 0, 0, 0], [2, 5, 6, 8, 7, 3, 0]],
        "token_type_ids": [[0] * 7] * 2,
        "attention_mask": [[1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]],
        "labels": [[3, 1, 3, 0, 0, 0, 0], [5, 3, 1, 4, 3, 6, 0]],
        "mask": [[1.0] * 3 + [0.0] * 4, [1.0] * 6 + [0.0]],
    }


def test_padding_may_count_and_be_other_tokens_and_labels(opened):
    sample = read(opened(counts_padding=True, padding=7, label_padding=4), [1])
    assert sample["mask"] == [[1.0] * 7]
    assert (sample["input_ids"][0][3:], sample["labels"][0][3:]) == ([7] * 4, [4] * 4)


def test_padding_is_the_token_pad_unless_said_otherwise(opened):
    words = [*WORDS[1:], "[PAD]"]
    sample = read(opened(words=words), [1])
    assert (sample["input_ids"][0][3:], sample["labels"][0][3:]) == ([14] * 4, [14] * 4)


def test_lower_case_is_of_tokens(opened):
    assert read(opened([["THE Cat", "O B"]], do_lower=True), [0])["input_ids"][0][:2] == [5, 6]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["a a", "O"], "tokens must have a label each, and be at least one, got 2 with 1 labels"),
        (["", ""], "tokens must have a label each, and be at least one, got 0 with 0 labels"),
        (["a", "Q"], "labels must be of [PAD], B, I, O, X, [CLS], [SEP], got 'Q'"),
        (
            ["a " * 8, "O " * 8],
            "tokens must be at most max_sequence_length (7), got 8\n"
            "hint: texts with classes are not cut; give a larger max_sequence_length",
        ),
    ],
)
def test_a_wrong_row_is_an_error_with_its_line(opened, tmp_path, error_of, row, message):
    assert error_of(tmp_path, read, opened([*ROWS, row]), [2]) == f"DIR/data/a.csv:4: {message}"


def test_labels_must_be_classes_of_the_model(opened, tmp_path, error_of):
    assert opened(classes=7).sample_count == 2
    assert error_of(tmp_path, opened, classes=6) == (
        "DIR/label2id.json: labels must be below num_classes (6) of the model, got 6 for '[SEP]'\n"
        "hint: set num_classes to 7"
    )
    assert error_of(tmp_path, opened, words=[*WORDS[1:], "[PAD]"], classes=7) == (
        "DIR/vocab.txt: [PAD], the label of padding, must be below num_classes (7), got 14\n"
        "hint: labels_pad_id in the dataloader gives another"
    )


def test_the_numbers_of_labels_must_be_there(opened, tmp_path, error_of):
    rule = "must be a JSON file with the numbers of labels"
    assert error_of(tmp_path, opened, labels=tmp_path / "none") == f"DIR/none: {rule}, found nothing there\n{HINT}"
    for numbers in ({}, [1], {"O": "1"}, {"O": -1}, {"O": True}):
        assert error_of(tmp_path, opened, numbers=numbers) == (
            "DIR/label2id.json: must be a JSON file with the numbers of labels, got something else\n" + HINT
            if numbers != {}
            else f"DIR/label2id.json: {rule}, got something else\n{HINT}"
        )
    assert error_of(tmp_path, opened, labels=tmp_path) == "DIR: must be readable, got: Is a directory"


def test_columns_must_be_there(opened, tmp_path, error_of):
    assert error_of(tmp_path, opened, columns=("tokens", "classes")) == (
        "DIR/data/a.csv: must have the columns tokens, labels, got tokens, classes\nhint: labels is missing"
    )
