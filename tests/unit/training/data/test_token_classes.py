"""Texts with a class for each token."""

import json

import pytest

from cstool.model.params import TokenClassesParams
from cstool.training.data.token_classes import TokenClassesDataset
from tests.unit.training.data.encoder_files import WORDS, opened_by, read, shapes, write_rows, write_vocabulary

ROWS = [["[CLS] the cat ##s sat [SEP]", "[CLS] O B X O [SEP]"], ["a whale .", "O B O"]]
NUMBERS = {"[PAD]": 0, "B": 1, "I": 2, "O": 3, "X": 4, "[CLS]": 5, "[SEP]": 6}
HINT = 'hint: it gives each label its number: {"O": 0, "B": 1}'


@pytest.fixture
def opened(tmp_path):
    def call(rows=ROWS, columns=("tokens", "labels"), numbers=None, **changes):
        folder = tmp_path / "data"
        write_rows(folder, "a.csv", columns, rows)
        (tmp_path / "label2id.json").write_text(json.dumps(NUMBERS if numbers is None else numbers))
        usual = {"vocab_file": write_vocabulary(tmp_path, changes.pop("words", WORDS)), "max_sequence_length": 7}
        usual["label_vocab_file"] = changes.pop("labels", tmp_path / "label2id.json")
        return opened_by(TokenClassesDataset, TokenClassesParams, [folder], **usual, **changes)

    return call


def test_each_token_has_its_class(opened):
    dataset = opened(classes=7)
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


def test_padding_may_count_and_be_other_tokens_and_labels_and_is_the_token_pad_unless_said_otherwise(opened):
    sample = read(opened(include_padding_in_loss=True, input_pad_id=7, labels_pad_id=4), [1])
    assert sample["mask"] == [[1.0] * 7]
    assert (sample["input_ids"][0][3:], sample["labels"][0][3:]) == ([7] * 4, [4] * 4)
    sample = read(opened(words=[*WORDS[1:], "[PAD]"]), [1])
    assert (sample["input_ids"][0][3:], sample["labels"][0][3:]) == ([14] * 4, [14] * 4)
    assert read(opened([["THE Cat", "O B"]], do_lower=True), [0])["input_ids"][0][:2] == [5, 6]


UNCUT = "texts with classes are not cut; give a larger max_sequence_length"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["a a", "O"], "tokens must have a label each, and be at least one, got 2 with 1 labels"),
        (["", ""], "tokens must have a label each, and be at least one, got 0 with 0 labels"),
        (["a", "Q"], "labels must be of [PAD], B, I, O, X, [CLS], [SEP], got 'Q'"),
        (["a " * 8, "O " * 8], f"tokens must be at most max_sequence_length (7), got 8\nhint: {UNCUT}"),
    ],
)
def test_a_wrong_row_is_an_error_with_its_line(opened, error_of, row, message):
    assert error_of(read, opened([*ROWS, row]), [2]) == f"DIR/data/a.csv:4: {message}"


RULE, ELSE = "DIR/label2id.json: must be a JSON file with the numbers of labels, got", "something else"
PAD = "[PAD], the label of padding, must be below num_classes (7), got 14\nhint: labels_pad_id in the dataloader gives "
BELOW = "labels must be below num_classes (6) of the model, got 6 for '[SEP]'\nhint: set num_classes to 7"
COLUMNS = "DIR/data/a.csv: must have the columns tokens, labels"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 6}, f"DIR/label2id.json: {BELOW}"),
        ({"words": [*WORDS[1:], "[PAD]"], "classes": 7}, f"DIR/vocab.txt: {PAD}another"),
        *(({"numbers": each}, f"{RULE} {ELSE}\n{HINT}") for each in ({}, [1], {"O": "1"}, {"O": -1}, {"O": True})),
        ({"columns": ("tokens", "classes")}, f"{COLUMNS}, got tokens, classes\nhint: labels is missing"),
    ],
    ids=str,
)
def test_labels_must_be_there_and_classes_of_the_model(opened, error_of, changes, message):
    assert error_of(opened, **changes) == message


def test_the_numbers_of_labels_must_be_a_file(opened, tmp_path, error_of):
    rule = "must be a JSON file with the numbers of labels, found nothing there"
    assert error_of(opened, labels=tmp_path / "none") == f"DIR/none: {rule}\n{HINT}"
    assert error_of(opened, labels=tmp_path) == "DIR: must be readable, got: Is a directory"
