"""Language-model samples in HDF5 files."""

import os
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from cstool.training.data import check_data, hdf5_rows, open_hdf5_text, write_hdf5_text
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.unit.training.data.encoder_files import APART, NOT_PACKED, OTHER_VOCABULARY, shapes, write_h5
from tests.unit.training.data.encoder_files import read as read_fields
from tests.unit.training.data.made import samples, write


def read(dataset, indices):
    out = read_fields(dataset, indices)
    shape = len(indices), *dataset.fields["labels"].shape
    return np.stack([np.reshape(out[name], shape) for name in ("input_ids", "mask", "labels")], axis=1)


@pytest.fixture
def three_files(tmp_path):
    """Return a folder with samples of three files, and the samples."""
    parts = [samples(count, seed=count) for count in (5, 1, 7)]
    for name, part in zip(("a.h5", "b.h5", "c.h5"), parts, strict=True):
        write(tmp_path / name, part)
    return tmp_path, np.concatenate(parts)


def test_a_written_file_is_the_vendors_layout_and_has_the_same_bytes_however_the_samples_come(tmp_path):
    write(tmp_path / "a.h5", samples(9))
    with h5py.File(tmp_path / "a.h5") as file:
        assert (list(file), file["data"].dtype, file.attrs["n_examples"]) == (["data"], np.dtype("int32"), 9)
        assert np.array_equal(file["data"], samples(9))
        assert h5py.h5o.get_info(file["data"].id).ctime == 0
    write_hdf5_text(tmp_path / "b.h5", iter([samples(9)[:2], samples(9)[2:]]), 9, 4)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_writing_that_fails_in_the_middle_keeps_the_file_that_was_there(tmp_path):
    def broken():
        yield samples(4)
        raise KeyboardInterrupt

    write(tmp_path / "a.h5", samples(2))
    before = (tmp_path / "a.h5").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_hdf5_text(tmp_path / "a.h5", broken(), 9, 4)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.h5": before}


def test_writing_other_samples_than_announced_is_refused(tmp_path):
    for count, length, message in (
        (5, 4, "5 samples were announced, got 4"),
        (3, 4, "3 samples were announced, got 4"),
        (4, 5, "chunks must be (n, 3, 5) int32, got (4, 3, 4) int32"),
    ):
        with refusal(ValueError, message):
            write_hdf5_text(tmp_path / "a.h5", [samples(4)], count, length)


def test_folders_are_read_in_the_order_given(tmp_path):
    for name, seed in (("z", 1), ("a", 2)):
        write(tmp_path / name / "data.h5", samples(2, seed=seed))
    dataset = open_hdf5_text([tmp_path / "z", tmp_path / "a"])
    assert np.array_equal(read(dataset, range(4)), np.concatenate([samples(2, seed=1), samples(2, seed=2)]))


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(indices=st.lists(st.integers(0, 12), max_size=20))
def test_reading_is_indexing_the_whole_content(three_files, indices):
    folder, content = three_files
    assert np.array_equal(read(open_hdf5_text([folder]), indices), content[indices])


def test_few_open_files_are_enough_for_many_and_closed_ones_are_opened_again(three_files, monkeypatch):
    monkeypatch.setattr(hdf5_rows, "OPEN_FILES_LIMIT", 1)
    folder, content = three_files
    dataset = open_hdf5_text([folder])
    before = len(os.listdir("/proc/self/fd"))
    assert np.array_equal(read(dataset, [12, 0, 5, 1]), content[[12, 0, 5, 1]])
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    dataset.close()
    dataset.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert np.array_equal(read(dataset, [6]), content[[6]])


def test_runs_of_rows_are_read_at_once(three_files, monkeypatch):
    runs = []
    kind = hdf5_rows.Hdf5Dataset
    original = kind._read_run
    monkeypatch.setattr(kind, "_read_run", lambda self, *run: runs.append(run) or original(self, *run))
    read(open_hdf5_text([three_files[0]]), [4, 3, 5, 0, 3, 12])
    found = [(path.name, start, stop) for path, _, start, stop, _ in runs]
    assert found == [("a.h5", 0, 1), ("a.h5", 3, 5), ("b.h5", 0, 1), ("c.h5", 6, 7)]


@pytest.mark.parametrize("length", [1, 3, 4, None])
def test_fields_are_tokens_mask_and_labels_and_samples_can_be_cut_to_at_most_their_length(three_files, length):
    folder, content = three_files
    dataset = open_hdf5_text([folder], max_sequence_length=length)
    shape = (length or 4,)
    assert shapes(dataset) == {"input_ids": (shape, "int32"), "mask": (shape, "float32"), "labels": (shape, "int32")}
    assert np.array_equal(read(dataset, range(13)), content[:, :, :length])


def test_description_is_one_line_that_counts_the_folders(three_files):
    for folders, words in ((1, ": 13 samples"), (3, " and 2 more: 39 samples")):
        assert open_hdf5_text([three_files[0]] * folders).describe() == f"{three_files[0]}{words} of 4 tokens"


def test_samples_that_do_not_exist_are_a_mistake_of_the_caller(three_files):
    with pytest.raises(IndexError, match=r"^samples are numbered from 0 to 12, got -1 to 13$"):
        read(open_hdf5_text([three_files[0]]), [-1, 13])


def test_compressed_files_without_the_number_are_read_and_labels_that_do_not_count_are_zero(tmp_path):
    content = samples(6)
    content[0, 1:, 2] = 0, -100
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=content, chunks=(2, 3, 4), compression="gzip")
    found = read(open_hdf5_text([tmp_path], vocab_size=100), [5, 0])
    content[0, 2, 2] = 0
    assert np.array_equal(found, content[[5, 0]])


ANEW = "\nhint: remove it, or make it again"
COPY = "must be a whole HDF5 file, got a truncated or damaged one\nhint: make or copy it again"
PREPARE = "\nhint: `cstool data prepare text --output DIR --sequence_length N` makes a data set from any files"
SHAPE, THREE = 'dataset "data" must have the shape (samples, 3, tokens)', "input_ids, attention_mask, labels"
CHANGED = "\nhint: the file was not written to its end, or was changed; make it again"


def with_data(shape, kind=np.int32, **others):
    return partial(write_h5, data=np.zeros(shape, kind), **others)


def truncated(path):
    write_h5(path, data=np.zeros((9, 3, 8), np.int32))
    os.truncate(path, path.stat().st_size - 10)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path.write_text("hello"), f"must be an HDF5 file, got something else{ANEW}"),
        (Path.touch, f"must be an HDF5 file, got something else{ANEW}"),
        (Path.mkdir, "must be an HDF5 file, got a folder\nhint: rename the folder"),
        # Nor does a pipe keep anybody waiting.
        (os.mkfifo, "must be an HDF5 file, got a pipe or a device\nhint: remove it"),
        (truncated, COPY),
        (write_h5, f'must hold a dataset "data", got nothing{PREPARE}'),
        (partial(write_h5, tokens=[1], labels=[1]), f'must hold a dataset "data", got "labels", "tokens"{PREPARE}'),
        (partial(write_h5, **{"data/x": 1}), f'must hold a dataset "data", got a group of this name{PREPARE}'),
        (with_data((4, 8)), f"{SHAPE}, got (4, 8)\nhint: the three are {THREE}"),
        (with_data((4, 2, 8)), f"{SHAPE}, got (4, 2, 8)\nhint: the three are {THREE}"),
        (with_data((4, 3, 0)), f"{SHAPE}, got (4, 3, 0)\nhint: the three are {THREE}"),
        (with_data((4, 3, 8), np.float32), 'dataset "data" must be int32, got float32'),
        (with_data((0, 3, 8)), "must hold at least one sample, got 0\nhint: remove the file"),
        (with_data((4, 3, 8), n_examples=7), f"attribute n_examples must be the number of samples (4), got 7{CHANGED}"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, error_of, make, expected):
    make(tmp_path / "a.h5")
    assert error_of(open_hdf5_text, [tmp_path]) == f"DIR/a.h5: {expected}"


def test_a_file_that_disappears_while_training_is_reported(tmp_path, error_of):
    write(tmp_path / "a.h5", samples(9))
    dataset = open_hdf5_text([tmp_path])
    (tmp_path / "a.h5").unlink()
    assert error_of(read, dataset, [3, 4]) == (
        "DIR/a.h5: samples 3 to 4 must be readable, got a damaged or missing file\n"
        "hint: the file changed after it was opened, or is damaged; make or copy it again"
    )


def test_samples_of_another_length_than_others_or_than_asked_for_are_refused(tmp_path, error_of):
    write(tmp_path / "a.h5", samples(2, sequence_length=8))
    assert error_of(open_hdf5_text, [tmp_path], max_sequence_length=9) == (
        "DIR/a.h5: samples must have at least max_sequence_length (9) tokens, got 8\n"
        "hint: set max_sequence_length to 8, or prepare the data with --sequence_length 9"
    )
    write(tmp_path / "b.h5", samples(2, sequence_length=16))
    assert error_of(open_hdf5_text, [tmp_path]) == (
        f"DIR/b.h5: samples must have 8 tokens, as in DIR/a.h5, got 16\n{APART}"
    )


def test_a_folder_without_files_is_refused(tmp_path, error_of):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").touch()
    write(tmp_path / "above" / "train" / "a.h5", samples(1))
    for name, message in {
        "empty": f"got none among its entries (1){PREPARE}",
        "above": "got none among its entries (1)\nhint: DIR/above/train has some",
        "no": f"found nothing there (looked for it as /x/no, /y/no){PREPARE}",
    }.items():
        error = error_of(open_hdf5_text, [tmp_path / name], tried="/x/no, /y/no")
        assert error == f"DIR/{name}: must be a folder with files *.h5, {message}"


@pytest.mark.parametrize(
    ("feature", "value", "rule"),
    [
        (0, 100, f"input_ids must be in [0, 100), got 100 in sample 6 at position 3\n{OTHER_VOCABULARY}"),
        (0, -1, f"input_ids must be in [0, 100), got -1 in sample 6 at position 3\n{OTHER_VOCABULARY}"),
        (1, 5, "attention_mask must be in [0, 2), got 5 in sample 6 at position 3"),
        (2, 100, f"labels must be in [0, 100), got 100 in sample 6 at position 3\n{OTHER_VOCABULARY}"),
        (2, -100, f"labels must be in [0, 100), got -100 in sample 6 at position 3\n{OTHER_VOCABULARY}"),
    ],
)
def test_tokens_and_masks_that_are_none_are_located(tmp_path, error_of, feature, value, rule):
    content = samples(9)
    content[6, 1] = 1
    content[6, feature, 3] = value
    write(tmp_path / "a.h5", samples(2))
    write(tmp_path / "b.h5", content)
    assert error_of(read, open_hdf5_text([tmp_path], vocab_size=100), [10, 8, 0]) == f"DIR/b.h5: {rule}"


def test_samples_in_another_file_are_refused(tmp_path, error_of):
    outside, inside = tmp_path / "elsewhere" / "a.h5", tmp_path / "linked" / "a.h5"
    write(outside, samples(2))
    inside.parent.mkdir()
    rule = 'DIR/linked/a.h5: dataset "data" must be in the file itself, '
    write_h5(inside, data=h5py.ExternalLink(str(outside), "data"))
    assert error_of(open_hdf5_text, [inside.parent]) == f"{rule}it is a link to another"
    layout = h5py.VirtualLayout(samples(2).shape, "int32")
    layout[:] = h5py.VirtualSource(str(outside), "data", samples(2).shape)
    with h5py.File(inside, "w") as file:
        file.create_virtual_dataset("data", layout)
    assert error_of(open_hdf5_text, [inside.parent]) == f"{rule}its samples are in another"


# Samples of several texts that do not see each other: one of 3 tokens, one of 1, one of 2, padding.


POSITIONS = [0, 1, 2, 0, 0, 1, 0, 0]
SPANS = [2, 1, 0, 0, 1, 0, 0, 0]
TEXTS = [1, 1, 1, 2, 3, 3, 4, 5]


def open_packed(folder, positions=POSITIONS, spans=SPANS, features=5, **how):
    rows = [range(1, 9), [1, 1, 0, 1, 1, 1, 0, 0], range(2, 10), spans, positions]
    write_h5(folder / "a.h5", 1, data=np.array([[list(row) for row in rows[:features]]], np.int32))
    return open_hdf5_text([folder], **{"is_packed": True, **how})


def test_each_token_is_of_a_text(tmp_path):
    dataset = open_packed(tmp_path)
    assert shapes(dataset)["segments"] == shapes(dataset)["position_ids"] == ((8,), "int32")
    sample = read_fields(dataset, [0])
    assert (sample["segments"], sample["position_ids"]) == ([TEXTS], [POSITIONS])
    assert sample["labels"] == [[2, 3, 0, 5, 6, 7, 0, 0]]
    assert set(read_fields(open_packed(tmp_path / "b", is_packed=False), [0])) == {"input_ids", "mask", "labels"}
    assert check_data(tmp_path / "b").findings == []
    sample = read_fields(open_packed(tmp_path / "c", max_sequence_length=5), [0])
    assert (sample["segments"], sample["position_ids"]) == ([TEXTS[:5]], [POSITIONS[:5]])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"positions": [1, *POSITIONS[1:]]}, "span 2 at position id 1, in sample 0 at position 0"),
        ({"positions": [0, 2, *POSITIONS[2:]]}, "span 1 at position id 2, in sample 0 at position 1"),
        ({"spans": [2, 1, 1, *SPANS[3:]]}, "span 1 at position id 2, in sample 0 at position 2"),
        ({"spans": [2, 2, *SPANS[2:]]}, "span 2 at position id 1, in sample 0 at position 1"),
        ({"spans": [*SPANS[:7], 1]}, None),  # the last token of a sample ends it, whatever its span
    ],
)
def test_spans_must_be_those_of_texts_back_to_back(tmp_path, error_of, changes, told):
    dataset = open_packed(tmp_path, **changes)
    if told is None:
        read(dataset, [0])
    else:
        rule = f"spans and positions must be those of texts back to back, got {told}"
        assert error_of(read, dataset, [0]) == f"DIR/a.h5: {rule}\n{NOT_PACKED}"
    [finding] = check_data(tmp_path).findings
    assert finding.startswith(f"{tmp_path}/a.h5: spans must be those of texts back to back, got ")


def test_samples_without_spans_are_an_error(tmp_path, error_of):
    needed = "input_ids, attention_mask, labels, attention_span, position_ids for use_vsl: true"
    told = f"DIR/a.h5: samples must have {needed}, got 3 features\n{NOT_PACKED}"
    assert error_of(open_packed, tmp_path, features=3) == told
