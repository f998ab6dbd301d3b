"""Samples of encoder-decoders in HDF5 files."""

import json
from functools import partial

import numpy as np
import pytest

from cstool.model.params import Hdf5PairsParams
from cstool.training.data.hdf5_pairs import FEATURES, Hdf5PairsDataset
from tests.unit.training.data.encoder_files import OTHER_VOCABULARY, opened_by, read, shapes, write_h5

open_hdf5_pairs = partial(opened_by, Hdf5PairsDataset, Hdf5PairsParams)

S, T = 6, 4
GROUPS = {
    "data_0": ["input_ids", "attention_mask"],
    "data_1": ["decoder_input_ids", "decoder_attention_mask", "labels"],
    "data_2": ["decoder_input_length"],
}
"""as the vendor's conversion writes the samples of its T5DynamicDataProcessor"""


def arrays(count: int, *, source: int = S, target: int = T, seed: int = 0) -> dict[str, np.ndarray]:
    """Features of samples; labels are wrong where they do not count."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in FEATURES:
        length = target if name == "labels" or name.startswith("decoder") else source
        limit = 2 if name.endswith("mask") else 50
        found[name] = rng.integers(0, limit, (count, length), dtype=np.int32)
    found["labels"][found["decoder_attention_mask"] == 0] = -100
    found["decoder_input_length"] = np.full((count, 1), target, np.int32)
    return found


def write(path, features, groups=GROUPS, *, told=True, n_examples=None):
    """Write a file, and what its folder says of it."""
    count = len(features["labels"])
    stacked = {key: np.stack([features[name] for name in names], axis=1) for key, names in groups.items()}
    write_h5(path, n_examples or count, compress=True, **stacked)
    params = {"features": groups["data"]} if "data" in groups else {f"{k}_features": v for k, v in groups.items()}
    if told:
        (path.parent / "data_params.json").write_text(json.dumps({"n_examples": count, **params}))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "data" / "a-1.h5", arrays(3))
    write(tmp_path / "data" / "a-2.h5", arrays(2, seed=1))
    return tmp_path / "data"


def expected(*parts: dict[str, np.ndarray]) -> dict[str, list]:
    found = {name: np.concatenate([part[name] for part in parts]) for name in FEATURES}
    found["mask"] = found["decoder_attention_mask"].astype(np.float32)
    found["labels"] = found["labels"] * found["decoder_attention_mask"]
    return {name: array.tolist() for name, array in found.items()}


def test_samples_are_those_of_the_files(folder):
    dataset = open_hdf5_pairs([folder], vocab_size=50)
    assert (shapes(dataset)["input_ids"], shapes(dataset)["labels"]) == (((S,), "int32"), ((T,), "int32"))
    whole = expected(arrays(3), arrays(2, seed=1))
    assert read(dataset, [0, 1, 2, 3, 4]) == whole
    assert read(dataset, [4, 1, 1]) == {name: [values[4], values[1], values[1]] for name, values in whole.items()}
    assert dataset.describe() == f"{folder}: 5 samples of 6 and 4 tokens"


@pytest.mark.parametrize("told", [True, False])
def test_one_dataset_has_all_features_of_one_length(tmp_path, told):
    made = arrays(3, target=S)
    write(tmp_path / "d" / "x.h5", made, {"data": FEATURES[::-1]}, told=told)
    dataset = open_hdf5_pairs([tmp_path / "d"], features_list=None if told else FEATURES[::-1])
    assert read(dataset, [0, 1, 2]) == expected(made)


REST = "data_params.json of the folder says what its datasets hold; else features_list of the dataloader does"
HINT = f"hint: {REST}"
ALL = "input_ids, attention_mask, decoder_input_ids, decoder_attention_mask, labels"


def test_missing_masks_are_an_error(tmp_path, error_of):
    groups = {**GROUPS, "data_0": ["input_ids"], "data_1": ["decoder_input_ids", "labels"]}
    write(tmp_path / "d" / "x.h5", arrays(1), groups)
    assert error_of(open_hdf5_pairs, [tmp_path / "d"]) == (
        f"DIR/d/data_params.json: must have the features {ALL}, got input_ids, decoder_input_ids, labels, "
        f"decoder_input_length\nhint: attention_mask and decoder_attention_mask are missing; {REST}"
    )
    (tmp_path / "d" / "data_params.json").unlink()
    told = f"must have the features {ALL}, got {', '.join(FEATURES[:4])}\nhint: labels is missing; {REST}"
    assert error_of(open_hdf5_pairs, [tmp_path / "d"], features_list=FEATURES[:4]) == f"DIR/d: features_list: {told}"


def test_features_must_lie_where_they_can_be_read(tmp_path, folder, error_of):
    groups = {"data_0": ["input_ids", "labels"], "data_1": ["attention_mask"], "data_2": GROUPS["data_1"][:2]}
    write(tmp_path / "d" / "x.h5", arrays(1, target=S), groups)
    rule = "input_ids, attention_mask must be in one dataset, got several"
    assert error_of(open_hdf5_pairs, [tmp_path / "d"]) == f"DIR/d/data_params.json: {rule}"
    write(tmp_path / "e" / "x.h5", arrays(1), {**GROUPS, "data_0": GROUPS["data_0"][::-1]})
    rule = "must have the features in the same places as DIR/data"
    assert error_of(open_hdf5_pairs, [folder, tmp_path / "e"]) == f"DIR/e: {rule}\n{HINT}"


def test_a_damaged_description_is_an_error(folder, error_of):
    rule = "must list the names of features, got something else"
    for content, message in [
        ("{", "must be readable JSON, got something else"),
        ('{"features": "labels"}', rule),
        ('{"data_0_features": [1]}', rule),
    ]:
        (folder / "data_params.json").write_text(content)
        assert error_of(open_hdf5_pairs, [folder]) == f"DIR/data/data_params.json: {message}\n{HINT}"


def test_files_that_do_not_fit_are_errors(folder, error_of):
    path = folder / "a-2.h5"
    write(path, arrays(2, source=S + 1))
    tokens = "(6 of data_0, 4 of data_1), got 7 of data_0, 4 of data_1"
    message = f"DIR/data/a-2.h5: samples must have the tokens of DIR/data/a-1.h5 {tokens}"
    assert error_of(open_hdf5_pairs, [folder]) == message
    write(path, arrays(2), {"data_0": GROUPS["data_0"], "data_1": GROUPS["data_1"][:2]}, told=False)
    assert error_of(open_hdf5_pairs, [folder]) == (
        'DIR/data/a-2.h5: dataset "data_1" must have the shape (samples, features, tokens) with at least 3 features, '
        f"got (2, 2, 4)\n{HINT}"
    )
    write(path, arrays(2), n_examples=7)
    assert error_of(open_hdf5_pairs, [folder]) == (
        "DIR/data/a-2.h5: attribute n_examples must be the number of samples (2), got 7\n"
        "hint: the file was not written to its end, or was changed; make it again"
    )
    path.write_bytes(path.read_bytes()[:2000])
    message = "must be a whole HDF5 file, got a truncated or damaged one\nhint: make or copy it again"
    assert error_of(open_hdf5_pairs, [folder]) == f"DIR/data/a-2.h5: {message}"


def test_numbers_out_of_range_are_errors(folder, error_of):
    made = arrays(3)
    made["decoder_input_ids"][1, 2], made["attention_mask"][0, 0] = 50, 2
    write(folder / "a-1.h5", made)
    dataset = open_hdf5_pairs([folder], vocab_size=50)
    rule = "decoder_input_ids must be in [0, 50), got 50 in sample 1 at position 2"
    assert error_of(read, dataset, [4, 1]) == f"DIR/data/a-1.h5: {rule}\n{OTHER_VOCABULARY}"
    rule = "attention_mask must be in [0, 2), got 2 in sample 0 at position 0"
    assert error_of(read, dataset, [0]) == f"DIR/data/a-1.h5: {rule}"
