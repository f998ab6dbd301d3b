"""Texts of which some sentences are to be taken into a summary."""

import pytest

from cstool.model.params import SummariesParams
from cstool.training.data.summaries import SummariesDataset, word_numbers
from tests.unit.training.data.encoder_files import (
    OTHER_VOCABULARY,
    opened_by,
    read,
    shapes,
    write_rows,
    write_vocabulary,
)

COLUMNS = ("input_token_ids", "labels", "segment_ids", "cls_indices")
ONE = ["[2, 5, 3, 2, 6, 7, 3, 2, 9, 3]", "[0, 1, 1]", "[0, 0, 0, 1, 1, 1, 1, 0, 0, 0]", "[0, 3, 7]"]
TWO = ["[2, 5, 3]", "[1]", "[0, 0, 0]", "[0]"]


@pytest.fixture
def opened(tmp_path):
    def call(rows=(ONE, TWO), columns=COLUMNS, **changes):
        write_rows(tmp_path / "data", "a.csv", columns, rows)
        keys = {"max_sequence_length": 12, "max_cls_tokens": 4, "pad_id": 0, **changes}
        return opened_by(SummariesDataset, SummariesParams, [tmp_path / "data"], **keys)

    return call


def test_each_sentence_has_a_label(opened):
    dataset = opened()
    assert shapes(dataset) == {
        **dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), ((12,), "int32")),
        "cls_positions": ((4,), "int32"),
        "labels": ((4,), "int32"),
        "mask": ((4,), "float32"),
        "word_numbers": ((12,), "int32"),
    }
    assert read(dataset, [1, 0]) == {
        "input_ids": [[2, 5, 3] + [0] * 9, [2, 5, 3, 2, 6, 7, 3, 2, 9, 3, 0, 0]],
        "token_type_ids": [[0] * 12, [0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0]],
        "attention_mask": [[1] * 3 + [0] * 9, [1] * 10 + [0] * 2],
        "cls_positions": [[0, 0, 0, 0], [0, 3, 7, 0]],
        "labels": [[1, 0, 0, 0], [0, 1, 1, 0]],
        "mask": [[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]],
        "word_numbers": [[-1, 5, 3] + [-1] * 9, [-1, 5, 3, -1, 6, 7, 3, -1, 9, 3, -1, -1]],
    }


def test_what_is_too_long_is_cut_and_its_sentences_do_not_count(opened):
    sample = read(opened(max_sequence_length=7), [0])
    assert sample["input_ids"] == [[2, 5, 3, 2, 6, 7, 3]]
    assert (sample["cls_positions"], sample["mask"]) == ([[0, 3, 0, 0]], [[1.0, 1.0, 0.0, 0.0]])
    sample = read(opened(max_cls_tokens=2), [0])
    assert (sample["cls_positions"], sample["labels"], sample["mask"]) == ([[0, 3]], [[0, 1]], [[1.0, 1.0]])


def test_padding_is_the_token_pad_of_the_vocabulary(opened, tmp_path):
    vocabulary = write_vocabulary(tmp_path, ["[UNK]", "x", "[PAD]"])
    assert read(opened(pad_id=None, vocab_file=vocabulary), [1])["input_ids"] == [[2, 5, 3] + [2] * 9]

    assert (word_numbers(["##s", "##s", "a"]), word_numbers([])) == ([0, -1, 1], []), "a text may begin within a word"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "The", "cat", "##s", ".", "##.", "sat"]
    tokens = [2, 5, 6, 7, 8, 3, 2, 4, 6, 9, 10, 8, 9, 1, 11]
    row = [str(tokens), "[0, 1]", str([0] * len(tokens)), "[0, 6]"]
    dataset = opened([row], max_sequence_length=16, vocab_file=write_vocabulary(tmp_path, words))
    # the cats . [SEP] / the cat. sat .. [unk], and a token that the vocabulary is without.
    expected = [-1, 0, 1, -1, -1, -1, -1, 0, 2, -1, 3, 4, -1, 5, -1, -1]
    assert read(dataset, [0])["word_numbers"] == [expected]


def test_columns_and_a_padding_must_be_there(opened, error_of):
    told = ", ".join(COLUMNS)
    assert error_of(opened, columns=(*COLUMNS[:3], "x")) == (
        f"DIR/data/a.csv: must have the columns {told}, got {told[:-11]}x\nhint: cls_indices is missing"
    )
    rule = "must be given where pad_id is not, got none\nhint: it says which token is [PAD]"
    assert error_of(opened, pad_id=None) == f"vocab_file: {rule}"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "[2, 50, 3]", f"input_token_ids must be in [0, 50), got 50\n{OTHER_VOCABULARY}"),
        (1, "[2]", "labels must be in [0, 2), got 2"),
        (1, "[1, 0]", "labels must have 1 value, one for each [CLS], got 2"),
        (2, "[0]", "segment_ids must have 3 values, one for each token, got 1"),
        (3, "[3]", "cls_indices must be in [0, 3), got 3"),
        (3, "[]", "labels must have 0 values, one for each [CLS], got 1"),
    ],
)
def test_a_wrong_row_is_an_error_with_its_line(opened, error_of, place, value, message):
    row = [*TWO[:place], value, *TWO[place + 1 :]]
    assert error_of(read, opened([ONE, row], vocab_size=50), [1]) == f"DIR/data/a.csv:3: {message}"


def test_sentences_must_be_in_order(opened, error_of):
    message = "DIR/data/a.csv:2: cls_indices must increase, got '[3, 0, 7]'"
    assert error_of(read, opened([[*ONE[:3], "[3, 0, 7]"]]), [0]) == message
