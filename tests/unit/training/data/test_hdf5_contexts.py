"""Questions with their contexts, in HDF5, as the vendor's preparation writes them; and what is refused."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cstool.model.params import DprLoaderParams
from cstool.training.data.hdf5_contexts import PARTS, SIDES, Hdf5ContextsDataset
from tests.unit.training.data.encoder_files import opened_by, read, write_h5

open_hdf5_contexts = partial(opened_by, Hdf5ContextsDataset, DprLoaderParams)

NAMES = [[f"{side}{part}" for part in PARTS] for side in SIDES]
HINT = "hint: its files hold data_0 and data_1, and data_params.json says what is in them, as the vendor's preparation "
HINT += "writes them"
LISTS = ", ".join(name for names in NAMES for name in names)


def write(folder: Path, name: str = "a.h5", *, first: int = 0, count: int = 3, **changes: np.ndarray) -> dict:
    """Write samples of 4 tokens with 2 contexts of 5; return questions and contexts."""
    rng = np.random.default_rng(first)
    tables = {"data_0": rng.integers(0, 2, (count, 3, 4)), "data_1": rng.integers(0, 2, (count, 3, 2, 5))}
    tables["data_0"][:, 0] += 4
    tables |= changes
    there = {key: table for key, table in tables.items() if table is not None}
    write_h5(folder / name, count, **{k: t if t.dtype == np.float32 else t.astype(np.int32) for k, t in there.items()})
    record(folder, data_0_features=NAMES[0], data_1_features=NAMES[1])
    return tables


def record(folder: Path, **features: object) -> None:
    (folder / "data_params.json").write_text(json.dumps(features))


def test_each_sample_is_a_question_with_its_contexts(tmp_path):
    one, two = write(tmp_path, "a.h5"), write(tmp_path, "b.h5", first=7, count=2)
    dataset = open_hdf5_contexts([tmp_path], vocab_size=6)
    described = f"{tmp_path}: 5 questions of 4 tokens, each with 2 contexts of 5"
    assert (dataset.sample_count, dataset.describe()) == (5, described)
    found = read(dataset, [4, 0, 4])
    for place, (tables, row) in enumerate([(two, 1), (one, 0), (two, 1)]):
        for side, table in zip(NAMES, ("data_0", "data_1"), strict=True):
            for part, name in enumerate(side):
                assert found[name][place] == tables[table][row, part].tolist()
    assert found["mask"] == [[1.0]] * 3


def test_the_record_says_which_dataset_has_what_in_which_order(tmp_path):
    tables = write(tmp_path)
    turned = {"data_0": tables["data_1"], "data_1": tables["data_0"][:, ::-1]}
    write(tmp_path / "turned", **turned)
    record(tmp_path / "turned", data_0_features=NAMES[1], data_1_features=NAMES[0][::-1])
    found = [read(open_hdf5_contexts([folder]), [0, 1, 2]) for folder in (tmp_path, tmp_path / "turned")]
    assert found[0] == found[1]


ZEROS = np.zeros((3, 3, 4), np.int32)
SHAPE = "must have the shape (samples, 3,"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_0": None}, f'must hold a dataset "data_0", got "data_1"\n{HINT}'),
        ({"data_1": None}, f'must hold a dataset "data_1", got "data_0"\n{HINT}'),
        ({"data_0": ZEROS[:, :2]}, f'dataset "data_0" {SHAPE} tokens), got (3, 2, 4)'),
        ({"data_1": ZEROS}, f'dataset "data_1" {SHAPE} contexts, tokens), got (3, 3, 4)'),
        ({"data_0": ZEROS.astype(np.float32)}, 'dataset "data_0" must be int32, got float32'),
        ({"data_0": ZEROS[:2]}, "must have contexts for 2 questions, got 3"),
    ],
)
def test_a_file_of_another_form_is_an_error(tmp_path, error_of, changes, message):
    write(tmp_path, **changes)
    assert error_of(open_hdf5_contexts, [tmp_path]) == f"DIR/a.h5: {message}"


def test_files_of_different_shapes_are_an_error(tmp_path, error_of):
    write(tmp_path)
    write(tmp_path, "b.h5", data_0=np.zeros((3, 3, 6), np.int32))
    assert error_of(open_hdf5_contexts, [tmp_path]) == (
        "DIR/b.h5: samples must have the shapes (3, 4) and (3, 2, 5), as in DIR/a.h5, got (3, 6) and (3, 2, 5)\n"
        "hint: keep samples of different shapes in different folders, and use one of them"
    )


def test_a_record_that_is_missing_or_says_something_else_is_an_error(tmp_path, error_of):
    write(tmp_path)
    for features, told in [
        ({"data_0_features": NAMES[0]}, f"{NAMES[0]}, None"),
        ({"data_0_features": NAMES[0], "data_1_features": NAMES[1][:2]}, f"{NAMES[0]}, {NAMES[1][:2]}"),
        ({"data_0_features": 2, "data_1_features": NAMES[1]}, f"2, {NAMES[1]}"),
    ]:
        record(tmp_path, **features)
        assert error_of(open_hdf5_contexts, [tmp_path]) == (
            f"DIR/data_params.json: data_0_features and data_1_features must be {LISTS}, those of questions in one and "
            f"those of contexts in the other, got {told}\n{HINT}"
        )
    (tmp_path / "data_params.json").write_text("{")
    rule = "data_params.json: must be JSON, got something else"
    assert error_of(open_hdf5_contexts, [tmp_path]) == f"DIR/{rule}\n{HINT}"
    (tmp_path / "data_params.json").unlink()
    rule = "must hold data_params.json, found nothing there"
    assert error_of(open_hdf5_contexts, [tmp_path]) == f"DIR: {rule}\n{HINT}"


def test_a_number_that_no_model_reads_is_an_error(tmp_path, error_of):
    contexts = write(tmp_path)["data_1"].copy()
    contexts[1, 0, 1, 3], contexts[2, 2, 0, 4] = 9, 2
    write(tmp_path, data_1=contexts)
    dataset = open_hdf5_contexts([tmp_path], vocab_size=6)
    assert error_of(read, dataset, [0, 1]) == (
        "DIR/a.h5: sample 1: ctx_input_ids must be in [0, 6), got 9 at position 3\n"
        "hint: vocab_size of both encoders must be that of the data set"
    )
    told = "DIR/a.h5: sample 2: ctx_token_type_ids must be in [0, 2), got 2 at position 4"
    assert error_of(read, dataset, [2]) == told
