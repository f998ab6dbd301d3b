"""Samples whose masks are drawn already, in HDF5."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.params import Hdf5MasksParams
from cstool.training.data.changed_samples import OneSequenceDataset
from cstool.training.data.hdf5_masks import Hdf5MasksDataset
from tests.unit.training.data.encoder_files import APART, NOT_PACKED, UNCUT, opened_by, read, shapes, write_masks
from tests.unit.training.data.made import samples, write

open_hdf5_masks = partial(opened_by, Hdf5MasksDataset, Hdf5MasksParams)

IDS, ATTENTION = [[2, 4, 6, 3, 0, 0], [2, 7, 4, 4, 3, 8]], [[1, 1, 1, 1, 0, 0], [1] * 6]
DATA = list(zip(IDS, ATTENTION, strict=True))
LABELS = [[[5, -100], [1, 0], [1, 0]], [[6, 5], [2, 3], [1, 1]]]
EXPECTED = {
    "input_ids": IDS,
    "attention_mask": ATTENTION,
    "masked_lm_positions": [[1, 0], [2, 3]],
    "labels": [[5, 0], [6, 5]],
    "mask": [[1.0, 0.0], [1.0, 1.0]],
}
PACKED = [
    [IDS[0], ATTENTION[0], [1, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]],
    [IDS[1], ATTENTION[1], [0, 2, 1, 0, 1, 0], [0, 0, 1, 2, 0, 1]],
]


@pytest.fixture
def opened(tmp_path):
    def call(data=DATA, labels=LABELS, **changes):
        write_masks(tmp_path / "a.h5", data[:1], labels[:1])
        write_masks(tmp_path / "b.h5", data[1:], labels[1:])
        return open_hdf5_masks([tmp_path], **changes)

    return call


def test_labels_for_positions_are_read_as_they_are_and_those_for_all_tokens_gathered(opened):
    dataset = opened()
    assert read(dataset, [0, 1]) == EXPECTED
    assert read(dataset, [1, 0, 1]) == {name: [v[1], v[0], v[1]] for name, v in EXPECTED.items()}
    assert {name: shape for name, (shape, _) in shapes(dataset).items()} == {
        name: (len(values[0]),) for name, values in EXPECTED.items()
    }
    dataset.close()
    labels = [[[-100, 5, -100, -100, -100, -100]], [[-100, -100, 6, 5, -100, -100]]]
    assert read(opened(labels=labels, max_predictions_per_seq=2), [0, 1]) == EXPECTED


def test_of_packed_samples_each_token_has_its_sequence(opened):
    sample = read(opened(PACKED, use_vsl=True), [1, 0])
    assert sample["segments"] == [[1, 2, 2, 2, 3, 3], [1, 1, 2, 2, 0, 0]]
    assert sample["position_ids"] == [[0, 0, 1, 2, 0, 1], [0, 1, 0, 1, 0, 0]]


def sees(span: list[int], position: list[int], query: int, key: int) -> bool:
    """Whether a query sees a key, by the rule of spans and positions."""
    return query - key <= span[key] and key - query <= position[key]


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), padding=st.integers(0, 3))
def test_tokens_of_the_same_sequence_are_those_that_see_each_other(tmp_path_factory, lengths, padding):
    position = [i for length in lengths for i in range(length)] + [0] * padding
    span = [length - 1 - i for length in lengths for i in range(length)] + [0] * padding
    real = [1] * sum(lengths) + [0] * padding
    folder = tmp_path_factory.mktemp("packed")
    write_masks(folder / "a.h5", [[[7] * len(real), real, span, position]], [[[7], [0], [1]]])
    [segments] = read(open_hdf5_masks([folder], use_vsl=True), [0])["segments"]
    for query in range(sum(lengths)):
        for key in range(sum(lengths)):
            assert (segments[query] == segments[key]) == sees(span, position, query, key)
    assert [segment > 0 for segment in segments] == [bool(token) for token in real]


@pytest.mark.parametrize(
    ("feature", "place", "value"), [(2, 0, 0), (2, 1, 1), (3, 1, 2), (3, 2, 1), (1, 1, 0), (3, 0, 1), (2, 3, 4)]
)
def test_spans_that_are_of_no_sequences_are_an_error(opened, error_of, feature, place, value):
    data = np.array(PACKED)
    data[0, feature, place] = value
    message = error_of(read, opened(data.tolist(), use_vsl=True), [1, 0])
    rule = "spans and positions must be those of sequences back to back, got span "
    assert message.startswith(f"DIR/a.h5: sample 0: {rule}")
    assert message.endswith(f"\n{NOT_PACKED}")


def test_samples_that_are_not_packed_stand_beside_others_as_one_sequence_or_are_refused(opened, error_of):
    assert error_of(opened, use_vsl=True) == (
        'DIR/a.h5: dataset "data" must have 4 features of packed samples, input_ids, attention_mask, attention_span, '
        f"position_ids, got 2\n{NOT_PACKED}"
    )
    assert read(opened(PACKED), [0, 1]) == EXPECTED
    dataset = OneSequenceDataset(opened())
    segments = {"segments": ATTENTION, "position_ids": [[0, 1, 2, 3, 0, 0], [0, 1, 2, 3, 4, 5]]}
    assert read(dataset, [0, 1]) == EXPECTED | segments
    assert (dataset.sample_count, dataset.describe().split(": ")[1]) == (2, "2 samples of 6 tokens")


def test_files_must_be_alike_and_samples_are_not_cut(tmp_path, opened, error_of):
    assert opened(max_sequence_length=6).sample_count == 2
    rule = "samples must have max_sequence_length (4) tokens, got 6"
    assert error_of(opened, max_sequence_length=4) == f"DIR/a.h5: {rule}\n{UNCUT}"
    write_masks(tmp_path / "b.h5", [[[1, 2], [1, 1]]], [[[5], [1], [1]]])
    rule = "samples must have 6 tokens and 2 labels, as in DIR/a.h5, got 2 tokens and 1 labels"
    assert error_of(open_hdf5_masks, [tmp_path]) == f"DIR/b.h5: {rule}\n{APART}"


def test_text_is_no_masked_text(tmp_path, error_of):
    write(tmp_path / "a.h5", samples(3))
    assert error_of(open_hdf5_masks, [tmp_path]) == (
        'DIR/a.h5: must hold a dataset "labels", got "data"\nhint: its files hold data and labels, as the vendor\'s '
        "preprocessing with training_objective: mlm writes them"
    )


LABEL_SHAPE = 'dataset "labels" must have the shape (1, 3, predictions) or (1, 1, 6), got'


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        ([[1, 2]], LABELS[:1], 'dataset "data" must have the shape (samples, 2 or more, tokens), got (1, 2)\n'),
        (DATA[:1], [[[1, 2], [3, 4]]], f"{LABEL_SHAPE} (1, 2, 2)"),
        (DATA[:1], LABELS, f"{LABEL_SHAPE} (2, 3, 2)"),
    ],
)
def test_other_shapes_are_refused(tmp_path, error_of, data, labels, message):
    write_masks(tmp_path / "a.h5", data, labels)
    assert error_of(open_hdf5_masks, [tmp_path]).startswith(f"DIR/a.h5: {message}")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ((0, 0, 1, 50), "input_ids must be in [0, 50), got 50 at position 1"),
        ((0, 1, 2, 2), "attention_mask must be in [0, 2), got 2 at position 2"),
        ((1, 0, 0, 50), "labels must be below 50, got 50 at position 0"),
        ((1, 1, 1, 6), "positions of labels must be in [0, 6), got 6 at position 1"),
        ((1, 2, 0, 2), "the mask of labels must be in [0, 2), got 2 at position 0"),
    ],
)
def test_wrong_values_are_errors_with_their_place(opened, error_of, changed, message):
    which, feature, place, value = changed
    both = [np.array(DATA), np.array(LABELS)]
    both[which][1, feature, place] = value
    found = error_of(read, opened(both[0].tolist(), both[1].tolist(), vocab_size=50), [0, 1])
    assert found.split("\n")[0] == f"DIR/b.h5: sample 0: {message}"
