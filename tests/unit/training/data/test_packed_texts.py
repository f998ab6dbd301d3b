"""Samples of several texts that do not see each other."""

import h5py
import numpy as np
import pytest

from cstool.training.data import check_data
from cstool.training.data.hdf5_text import open_hdf5_text
from tests.unit.training.data.encoder_files import read, shapes

#            a text of 3, one of 1, one of 2, padding
POSITIONS = [0, 1, 2, 0, 0, 1, 0, 0]
SPANS = [2, 1, 0, 0, 1, 0, 0, 0]
TEXTS = [1, 1, 1, 2, 3, 3, 4, 5]


def write(path, positions=POSITIONS, spans=SPANS, features=5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [range(1, 9), [1, 1, 0, 1, 1, 1, 0, 0], range(2, 10), spans, positions]
    with h5py.File(path, "w") as file:
        file["data"] = np.array([[list(row) for row in rows[:features]]], np.int32)
        file.attrs["n_examples"] = 1


def test_each_token_is_of_a_text(tmp_path):
    write(tmp_path / "d" / "a.h5")
    dataset = open_hdf5_text([tmp_path / "d"], is_packed=True)
    assert shapes(dataset)["segments"] == shapes(dataset)["position_ids"] == ((8,), "int32")
    sample = read(dataset, [0])
    assert (sample["segments"], sample["position_ids"]) == ([TEXTS], [POSITIONS])
    assert sample["labels"] == [[2, 3, 0, 5, 6, 7, 0, 0]]
    assert set(read(open_hdf5_text([tmp_path / "d"]), [0])) == {"input_ids", "mask", "labels"}
    assert check_data(tmp_path / "d").findings == []
    sample = read(open_hdf5_text([tmp_path / "d"], is_packed=True, max_sequence_length=5), [0])
    assert (sample["segments"], sample["position_ids"]) == ([TEXTS[:5]], [POSITIONS[:5]])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"positions": [1, *POSITIONS[1:]]}, "span 2 at position id 1, in sample 0 at position 0"),
        ({"positions": [0, 2, *POSITIONS[2:]]}, "span 1 at position id 2, in sample 0 at position 1"),
        ({"spans": [2, 1, 1, *SPANS[3:]]}, "span 1 at position id 2, in sample 0 at position 2"),
        ({"spans": [2, 2, *SPANS[2:]]}, "span 2 at position id 1, in sample 0 at position 1"),
        ({"spans": [*SPANS[:7], 1]}, "span 1 at position id 0, in sample 0 at position 7"),
    ],
)
def test_spans_must_be_those_of_texts_back_to_back(tmp_path, error_of, changes, told):
    write(tmp_path / "d" / "a.h5", **changes)
    dataset = open_hdf5_text([tmp_path / "d"], is_packed=True)
    if "7" in told:  # the last token of a sample ends it, whatever its span
        read(dataset, [0])
    else:
        assert error_of(read, dataset, [0]) == (
            f"DIR/d/a.h5: spans and positions must be those of texts back to back, got {told}\n"
            "hint: use_vsl: false takes samples that are not packed"
        )
    [finding] = check_data(tmp_path / "d").findings
    assert finding.startswith(f"{tmp_path}/d/a.h5: spans must be those of texts back to back, got ")


def test_samples_without_spans_are_an_error(tmp_path, error_of):
    write(tmp_path / "d" / "a.h5", features=3)
    assert error_of(open_hdf5_text, [tmp_path / "d"], is_packed=True) == (
        "DIR/d/a.h5: samples must have input_ids, attention_mask, labels, attention_span, position_ids for "
        "use_vsl: true, got 3 features\nhint: use_vsl: false takes samples that are not packed"
    )
