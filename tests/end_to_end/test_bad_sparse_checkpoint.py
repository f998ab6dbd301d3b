"""Sparse weights in a checkpoint that does not fit: what is said, and that the hint is a way on.

In the expected messages TMP is the folder of the test.
"""

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.end_to_end.runs import gpt_params, run_file
from tests.unit.store.stored import without_digest

SECOND = "TMP/model_dir/checkpoint_2.mdl"
SPARSE_ONE = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight"
TOPK = {"sparsity": 0.75, "init_method": "topk"}
MODEL_ALONE = "--load_checkpoint_states model takes the weights alone"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> dict[str, Path]:
    """The checkpoints of two steps, sparse and dense."""
    found = {}
    for name, sparsity in (("sparse", TOPK), ("dense", [])):
        folder, steps = (
            tmp_path_factory.mktemp(name),
            {"init__loop": {"max_steps": 2}, "init__checkpoint": {"steps": 2}},
        )
        run_file(gpt_params(folder, data, init__sparsity=sparsity, **steps))
        found[name] = folder / "model_dir" / "checkpoint_2.mdl"
    return found


@pytest.fixture
def put(tmp_path, trained) -> Callable[[str], Path]:
    """Have a copy of one of them in the model_dir."""

    def put_there(name: str) -> Path:
        (tmp_path / "model_dir").mkdir()
        return Path(shutil.copy(trained[name], tmp_path / "model_dir"))

    return put_there


def test_what_does_not_go_with_a_run_is_refused_and_the_hint_is_a_way_on(refused, cstool, tmp_path, data, put):
    """`tests/unit/machine/test_sparse_state.py` has all that is said, and what becomes of the numbers."""
    checkpoint = put("dense")
    rule = f"{SPARSE_ONE} must be sparse, as in this run, got a dense one without a mask"
    hint = f"{MODEL_ALONE}, and init_method: topk keeps the largest"
    refused(f"{SECOND}: {rule}", hint, init__sparsity={"sparsity": 0.75})
    file = gpt_params(tmp_path, data, init__sparsity=TOPK, init__loop={"max_steps": 1})
    asked = ("--checkpoint_path", checkpoint, "--load_checkpoint_states", "model", "--model_dir", tmp_path / "next")
    assert cstool("run", "-p", file, *asked).said


def test_a_sparse_checkpoint_is_evaluated_alike_by_a_sparse_and_by_a_dense_file(tmp_path, data, put):
    put("sparse")
    sparse = run_file(gpt_params(tmp_path, data, init__sparsity=TOPK), mode="eval")
    dense = run_file(gpt_params(tmp_path, data), mode="eval")
    assert [len(found.sparsity) for found in (sparse, dense)] == [6, 0]
    assert dense.evaluations[0]["loss"] == pytest.approx(sparse.evaluations[0]["loss"], rel=1e-6)
    assert dense.streamed_bytes_per_step > sparse.streamed_bytes_per_step


@pytest.mark.parametrize(
    ("places", "values", "rule", "sparsity", "mode"),
    [
        (slice(2), (7, 3), "must ascend, got 7, 3 at 0", TOPK, "train"),
        (slice(2), (7, 3), "must ascend, got 7, 3 at 0", [], "eval"),
        (slice(-1, None), 1024, "must be less than 1024, got 1024 at 255", [], "train"),
        (slice(-1, None), 1024, "must be less than 1024, got 1024 at 255", TOPK, "eval"),
    ],
)
def test_indices_that_no_run_would_write_are_refused(cstool, refused, put, places, values, rule, sparsity, mode):
    """Though their checksum is theirs, and no digest binds it."""
    checkpoint = put("sparse")
    with h5py.File(checkpoint, "r+") as h5:
        dataset = h5[f"model.{SPARSE_ONE}.indices"]
        indices = dataset[:]
        indices[places] = values
        dataset[:] = indices
        dataset.attrs["crc32"] = np.uint32(zlib.crc32(indices.tobytes()))
    without_digest(checkpoint)
    hint = "no other checkpoint here is whole: choose another --model_dir to start fresh"
    refused(f"{SECOND}: model.{SPARSE_ONE}.indices {rule}", hint, "--mode", mode, init__sparsity=sparsity)
    verified = cstool("checkpoint", "verify", checkpoint)
    assert verified == (1, f"{SECOND}: model.{SPARSE_ONE}.indices {rule}\n", "")
