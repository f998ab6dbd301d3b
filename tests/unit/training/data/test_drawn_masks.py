"""Samples whose masks are drawn already, in CSV."""

import pytest

from cstool.model.params import DrawnMasksParams
from cstool.training.data.drawn_masks import DrawnMasksDataset
from tests.unit.training.data.encoder_files import OTHER_VOCABULARY, UNCUT, opened_by, read, shapes, write_rows

TEXT = ("input_ids", "attention_mask", "labels")
GATHERED = (*TEXT, "masked_lm_weights", "masked_lm_positions")
PAIRS = (*GATHERED, "token_type_ids", "next_sentence_label")
ONE = ["[2, 4, 6, 3, 0]", "[1, 1, 1, 1, 0]", "[5, 0]", "[1.0, 0.0]", "[1, 0]", "[0, 0, 1, 1, 0]", "1"]
TWO = ["[2, 7, 4, 4, 3]", "[1, 1, 1, 1, 1]", "[6, 5]", "[1, 1]", "[2, 3]", "[0, 0, 0, 0, 0]", "[0]"]


@pytest.fixture
def opened(tmp_path):
    def call(columns=PAIRS, rows=(ONE, TWO), has_pairs=True, **changes):
        folder = tmp_path / "data"
        write_rows(folder, "a.csv", columns, [row[: len(columns)] for row in rows])
        return opened_by(DrawnMasksDataset, DrawnMasksParams, [folder], disable_nsp=not has_pairs, **changes)

    return call


def test_pairs_are_read_as_they_are(opened):
    dataset = opened(max_sequence_length=5)
    assert shapes(dataset)["masked_lm_positions"] == ((2,), "int32")
    assert read(dataset, [1, 0]) == {
        "input_ids": [[2, 7, 4, 4, 3], [2, 4, 6, 3, 0]],
        "attention_mask": [[1] * 5, [1, 1, 1, 1, 0]],
        "masked_lm_positions": [[2, 3], [1, 0]],
        "labels": [[6, 5], [5, 0]],
        "mask": [[1.0, 1.0], [1.0, 0.0]],
        "token_type_ids": [[0] * 5, [0, 0, 1, 1, 0]],
        "next_sentence_label": [[0], [1]],
        "sample_mask": [[1.0], [1.0]],
    }
    texts = {"input_ids", "attention_mask", "masked_lm_positions", "labels", "mask"}
    assert shapes(opened(GATHERED, has_pairs=False)).keys() == texts


@pytest.mark.parametrize(("predictions", "most"), [(None, 1), (3, 3), (9, 5)])
def test_labels_of_all_tokens_are_gathered(opened, predictions, most):
    rows = [["[2, 4, 6, 3, 0]", "[1, 1, 1, 1, 0]", "[-100, 5, -100, -100, -100]"], ["[2, 3, 4, 3, 0]", "[1,1,1,1,0]"]]
    rows[1].append("[-100, -100, 0, -100, -100]")
    sample = read(opened(TEXT, rows, has_pairs=False, max_predictions_per_seq=predictions), [0, 1])
    rest = [0] * (most - 1)
    found = sample["masked_lm_positions"], sample["labels"], sample["mask"]
    assert found == ([[1, *rest], [2, *rest]], [[5, *rest], [0, *rest]], [[1.0, *rest]] * 2)


def test_more_labels_than_there_is_room_for_are_an_error(opened, error_of):
    row = ["[2, 4, 6, 3, 0]", "[1, 1, 1, 1, 0]", "[1, 5, 3, -1, -1]"]
    assert error_of(read, opened(TEXT, [row], has_pairs=False, max_predictions_per_seq=2), [0]) == (
        "DIR/data/a.csv:2: at most 2 labels must count, got 3\n"
        "hint: max_predictions_per_seq: 3 in the dataloader makes room for them"
    )


NEEDED = "must have the columns input_ids, attention_mask, labels, token_type_ids, next_sentence_label, got"
BOTH = "must have both masked_lm_positions and masked_lm_weights, or neither in any file, got"
UNLABELLED, HALF = [name for name in PAIRS if name != "labels"], (*TEXT, "masked_lm_positions")
ALONE = "\nhint: disable_nsp: true takes texts that do not come in pairs"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": GATHERED}, f": {NEEDED} {', '.join(GATHERED)}{ALONE}"),
        ({"columns": UNLABELLED}, f": {NEEDED} {', '.join(UNLABELLED)}\nhint: labels is missing"),
        ({"columns": HALF, "has_pairs": False}, f": {BOTH} {', '.join(HALF)}"),
        ({"max_sequence_length": 4}, f":2: input_ids must have max_sequence_length (4) tokens, got 5\n{UNCUT}"),
        ({"rows": [["[]", *ONE[1:]]]}, ":2: input_ids must have at least one token, got none"),
        ({"rows": [[*ONE[:2], "[]", *ONE[3:]]]}, ":2: labels must have at least one, got none"),
    ],
)
def test_what_is_missing_is_named(opened, error_of, changes, message):
    assert error_of(opened, **changes) == f"DIR/data/a.csv{message}"


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, "[1, 2]", "input_ids must have 5 values, as in the first row, got 2"),
        (0, "[2, 99, 6, 3, 0]", f"input_ids must be in [0, 50), got 99\n{OTHER_VOCABULARY}"),
        (1, "[1, 1, 1, 1, 2]", "attention_mask must be in [0, 2), got 2"),
        (1, "[1, 1]", "attention_mask must have 5 values, one for each token, got 2"),
        (2, "[50, 0]", f"labels must be below 50, got 50\n{OTHER_VOCABULARY}"),
        (2, "[-2147483649, 0]", f"labels must be in [-2147483648, 50), got -2147483649\n{OTHER_VOCABULARY}"),
        (2, "[5]", "labels must have 2 values, as in the first row, got 1"),
        (3, "[1, 0.5]", "masked_lm_weights must be a list of whole numbers, such as [1, 2], got '[1, 0.5]'"),
        (4, "[5, 0]", "masked_lm_positions must be in [0, 5), got 5"),
        (4, "[1]", "masked_lm_positions must have 2 values, one for each label, got 1"),
        (5, "[0]", "token_type_ids must have 5 values, one for each token, got 1"),
        (6, "2", "next_sentence_label must be in [0, 2), got 2"),
    ],
)
def test_a_wrong_row_is_an_error_with_its_line(opened, error_of, place, value, message):
    row = [*TWO[:place], value, *TWO[place + 1 :]]
    assert error_of(read, opened(rows=[ONE, row], vocab_size=50), [1]) == f"DIR/data/a.csv:3: {message}"
