"""Sparse weights in a checkpoint that does not fit: what is said, and that the hint is a way on.

In the expected messages TMP is the folder of the test.
"""

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.end_to_end.runs import gpt_params, run_file
from tests.unit.store.stored import without_digest

SECOND = "TMP/model_dir/checkpoint_2.mdl"
LIST = "cstool checkpoint list shows the checkpoints of a folder"
SPARSE_ONE = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight"
TOPK = {"sparsity": 0.75, "init_method": "topk"}
MODEL_ALONE = "--load_checkpoint_states model takes the weights alone"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> Path:
    """The checkpoint of two dense steps."""
    folder = tmp_path_factory.mktemp("trained")
    run_file(gpt_params(folder, data, init__loop={"max_steps": 2}, init__checkpoint={"steps": 2}))
    return folder / "model_dir" / "checkpoint_2.mdl"


@pytest.fixture(scope="module")
def trained_sparse(tmp_path_factory, data) -> Path:
    """The checkpoint of two sparse steps."""
    folder = tmp_path_factory.mktemp("trained_sparse")
    run_file(gpt_params(folder, data, init__sparsity=TOPK, init__loop={"max_steps": 2}, init__checkpoint={"steps": 2}))
    return folder / "model_dir" / "checkpoint_2.mdl"


def copied(checkpoint: Path, folder: Path) -> Path:
    """Return a model_dir with a copy of a checkpoint."""
    (folder / "model_dir").mkdir()
    shutil.copy(checkpoint, folder / "model_dir")
    return folder / "model_dir"


@pytest.fixture
def dense_dir(tmp_path, trained) -> Path:
    return copied(trained, tmp_path)


@pytest.fixture
def sparse_dir(tmp_path, trained_sparse) -> Path:
    return copied(trained_sparse, tmp_path)


def weight_of(checkpoint: Path, name: str) -> Any:
    """Return a weight of a checkpoint, sparse or not, with its zeros; (32, 32)."""
    with h5py.File(checkpoint) as file:
        stored = file[f"model.{name}"][:]
        if f"model.{name}.indices" not in file:
            return stored
        dense = np.zeros(32 * 32, np.float32)
        dense[file[f"model.{name}.indices"][:]] = stored
        return dense.reshape(32, 32)


@pytest.fixture
def taken_over(cstool, tmp_path, data) -> Callable[..., Any]:
    """Take the weights alone of a checkpoint over into a run; one of them, as the run began with it."""

    def weight(checkpoint: Path, **changes: Any) -> Any:
        file = gpt_params(tmp_path, data, init__checkpoint={"save_initial_checkpoint": True, "steps": 4}, **changes)
        asked = ("--checkpoint_path", checkpoint, "--load_checkpoint_states", "model")
        assert cstool("run", "-p", file, *asked, "--model_dir", tmp_path / "next").said
        return weight_of(tmp_path / "next" / "checkpoint_0.mdl", SPARSE_ONE)

    return weight


def test_a_dense_checkpoint_in_a_sparse_run_is_refused_and_the_hint_prunes_it(refused, taken_over, dense_dir):
    rule = f"{SPARSE_ONE} must be sparse, as in this run, got a dense one without a mask"
    hint = f"{MODEL_ALONE}, and init_method: topk keeps the largest"
    refused(f"{SECOND}: {rule}", hint, init__sparsity={"sparsity": 0.75})
    whole = weight_of(dense_dir / "checkpoint_2.mdl", SPARSE_ONE)
    largest = np.abs(whole) >= np.sort(np.abs(whole), axis=None)[-256]
    pruned = taken_over(dense_dir / "checkpoint_2.mdl", init__sparsity=TOPK)
    np.testing.assert_array_equal(pruned, np.where(largest, whole, 0))


def test_a_sparse_checkpoint_in_a_dense_run_is_refused_and_the_hint_fills_it(refused, taken_over, sparse_dir):
    rule = f"{SPARSE_ONE} must be dense, as in this run, got a sparse one"
    refused(f"{SECOND}: {rule}", f"{MODEL_ALONE}, with their zeros")
    filled = taken_over(sparse_dir / "checkpoint_2.mdl")
    np.testing.assert_array_equal(filled, weight_of(sparse_dir / "checkpoint_2.mdl", SPARSE_ONE))
    assert np.count_nonzero(filled) == 256


def test_a_sparse_checkpoint_is_evaluated_alike_by_a_sparse_and_by_a_dense_file(tmp_path, data, sparse_dir):
    sparse = run_file(gpt_params(tmp_path, data, init__sparsity=TOPK), mode="eval")
    dense = run_file(gpt_params(tmp_path, data), mode="eval")
    assert [len(found.sparsity) for found in (sparse, dense)] == [6, 0]
    assert dense.evaluations[0]["loss"] == pytest.approx(sparse.evaluations[0]["loss"], rel=1e-6)
    assert dense.streamed_bytes_per_step > sparse.streamed_bytes_per_step


@pytest.mark.usefixtures("sparse_dir")
def test_more_non_zeros_than_a_run_has_room_for_are_refused(refused):
    rule = f"{SPARSE_ONE} must have at most 102 non-zeros in this run, got 256"
    typed = ("--load_checkpoint_states", "model", "--mode", "eval")
    refused(f"{SECOND}: {rule}", "a lower sparsity makes room for them", *typed, init__sparsity={"sparsity": 0.9})


def spoil_indices(file: Path, change: Callable[[Any], None]) -> None:
    """Change indices of a checkpoint as no run would write them, the checksum with them, where no digest binds it."""
    with h5py.File(file, "r+") as h5:
        dataset = h5[f"model.{SPARSE_ONE}.indices"]
        indices = dataset[:]
        change(indices)
        dataset[:] = indices
        dataset.attrs["crc32"] = np.uint32(zlib.crc32(indices.tobytes()))
    without_digest(file)


def swap(indices: Any) -> None:
    indices[:2] = 7, 3


def go_beyond(indices: Any) -> None:
    indices[-1] = 1024


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("sparsity", [TOPK, []], ids=["sparse", "dense"])
@pytest.mark.parametrize(
    ("change", "rule"), [(swap, "must ascend, got 7, 3 at 0"), (go_beyond, "must be less than 1024, got 1024 at 255")]
)
def test_indices_that_no_run_would_write_are_refused(cstool, refused, sparse_dir, change, rule, sparsity, mode):
    spoil_indices(sparse_dir / "checkpoint_2.mdl", change)
    hint = "no other checkpoint here is whole: choose another --model_dir to start fresh"
    refused(f"{SECOND}: model.{SPARSE_ONE}.indices {rule}", hint, "--mode", mode, init__sparsity=sparsity)
    verified = cstool("checkpoint", "verify", sparse_dir / "checkpoint_2.mdl")
    assert verified == (1, f"{SECOND}: model.{SPARSE_ONE}.indices {rule}\n", "")


@pytest.mark.parametrize(
    ("changes", "got"), [({"init__model__num_hidden_layers": 1}, "none"), ({"init__model__hidden_size": 64}, "64 x 64")]
)
def test_a_mask_must_be_of_this_model(refused, tmp_path, data, changes, got):
    found = {"init__loop": {"max_steps": 1}, "init__checkpoint": {"steps": 1}, **changes}
    run_file(gpt_params(tmp_path / "other", data, **found))
    mask = "other/model_dir/checkpoint_1.mdl"
    group = {"init_method": "from_checkpoint", "mask_checkpoint": str(tmp_path / mask)}
    name = SPARSE_ONE if got != "none" else SPARSE_ONE.replace(".0.", ".1.")
    message = f"TMP/{mask}: must have the weight {name}, 32 x 32, for its mask, got {got}"
    refused(message, None, init__sparsity=group)


def test_a_mask_that_is_not_there_is_named(refused):
    message = "TMP/no.mdl: a checkpoint must be a file that can be read, got: No such file or directory"
    refused(message, LIST, init__sparsity={"init_method": "from_checkpoint", "mask_checkpoint": "no.mdl"})


def test_a_lottery_ticket_trains_what_an_earlier_run_found_from_where_it_began(tmp_path, data, sparse_dir, trained):
    """The mask of one run and the weights of another; masked they stay, and a resumed run asks for neither."""
    group = {
        "init_method": "from_checkpoint",
        "mask_checkpoint": str(sparse_dir / "checkpoint_2.mdl"),
        "rewind_checkpoint": str(trained),
    }
    checkpoint = {"save_initial_checkpoint": True, "steps": 1}
    changes = {"init__sparsity": group, "init__checkpoint": checkpoint, "init__loop": {"max_steps": 1}}
    first = run_file(gpt_params(tmp_path / "ticket", data, **changes))
    mask = weight_of(sparse_dir / "checkpoint_2.mdl", SPARSE_ONE) != 0
    expected = np.where(mask, weight_of(trained, SPARSE_ONE), 0)
    np.testing.assert_array_equal(weight_of(Path(first.checkpoints[0]), SPARSE_ONE), expected)
    after = weight_of(Path(first.checkpoints[1]), SPARSE_ONE)
    assert np.count_nonzero(after) == 256
    assert not after[~mask].any()
    (sparse_dir / "checkpoint_2.mdl").unlink()
    resumed = run_file(gpt_params(tmp_path / "ticket", data, **{**changes, "init__loop": {"max_steps": 2}}))
    assert resumed.first_step == 1
