"""`cstool checkpoint`."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from cstool import __version__
from cstool.store import CheckpointWriter


@pytest.fixture
def model_dir(tmp_path):
    """A folder with the checkpoints of steps 5 and 10, that of step 10 with a tied weight."""
    embedding = np.arange(6, dtype=np.float32).reshape(3, 2)
    for step in (5, 10):
        with CheckpointWriter(tmp_path / f"checkpoint_{step}.mdl") as writer:
            writer.add_tensor("model.embedding_layer.word_embeddings.weight", (3, 2), "float32", [embedding])
            writer.link("model.lm_head.weight", "model.embedding_layer.word_embeddings.weight")
            writer.add_tensor("optimizer.exp_avg", (3, 2), "float32", [embedding])
            writer.add_value("global_step", step)
            writer.add_value("random", {"seed": 7})
            writer.add_value("dataloader", {"batches_streamed": 1200 + step})
            writer.add_value("__metadata__", [{"version": __version__, "model_name": "gpt2", "params": {}}])
    return tmp_path


def without_sizes(text: str) -> str:
    """Return the text without what depends on the HDF5 library and on the time."""
    return re.sub(r"\d+-\d+-\d+ \d+:\d+:\d+ UTC", "TIME", re.sub(r" +[\d.]+ KiB", "  SIZE", text))


def test_a_list_names_step_size_and_file_the_latest_last(cstool, model_dir):
    outcome = cstool("checkpoint", "list", str(model_dir))
    assert (outcome.code, outcome.stderr) == (0, "")
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [
        ("step", "file"),
        ("5", "checkpoint_5.mdl"),
        ("10", "checkpoint_10.mdl"),
    ]


def test_a_list_is_there_as_json(cstool, model_dir):
    document = json.loads(cstool("checkpoint", "list", str(model_dir), "--json").stdout)
    assert document == {
        "checkpoints": [
            {"step": step, "path": str(path), "bytes": path.stat().st_size}
            for step, path in ((5, model_dir / "checkpoint_5.mdl"), (10, model_dir / "checkpoint_10.mdl"))
        ]
    }


def test_an_empty_folder_has_no_checkpoints(cstool, tmp_path):
    assert cstool("checkpoint", "list", str(tmp_path)) == (0, f"{tmp_path}: no checkpoints\n", "")


def test_an_empty_folder_is_an_empty_list_in_json(cstool, tmp_path):
    assert json.loads(cstool("checkpoint", "list", str(tmp_path), "--json").stdout) == {"checkpoints": []}


def test_a_folder_that_is_not_there_is_an_error(cstool, tmp_path):
    message = f"error: {tmp_path}/no: must be a folder, found nothing there\nhint: give the model_dir of a run\n"
    assert cstool("checkpoint", "list", str(tmp_path / "no")) == (2, "", message)


def test_a_file_is_no_folder_of_checkpoints(cstool, model_dir):
    path = model_dir / "checkpoint_5.mdl"
    message = f"error: {path}: must be a folder, got a file\nhint: give the model_dir of a run\n"
    assert cstool("checkpoint", "list", str(path)) == (2, "", message)


def test_info_shows_what_a_checkpoint_holds(cstool, model_dir, golden):
    outcome = cstool("checkpoint", "info", str(model_dir / "checkpoint_10.mdl"))
    assert (outcome.code, outcome.stderr) == (0, "")
    golden("cli/checkpoint_info.txt", without_sizes(outcome.stdout.replace(str(model_dir), "DIR")))


def test_info_lists_all_tensors_where_asked_to(cstool, model_dir, golden):
    outcome = cstool("checkpoint", "info", str(model_dir / "checkpoint_10.mdl"), "--all")
    assert (outcome.code, outcome.stderr) == (0, "")
    golden("cli/checkpoint_info_all.txt", without_sizes(outcome.stdout.replace(str(model_dir), "DIR")))


def test_info_is_there_as_json(cstool, model_dir):
    document = json.loads(cstool("checkpoint", "info", str(model_dir / "checkpoint_10.mdl"), "--json").stdout)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*\+00:00", document.pop("created"))
    assert document == {
        "path": str(model_dir / "checkpoint_10.mdl"),
        "version": "1.0",
        "cstool_version": __version__,
        "step": 10,
        "model_name": "gpt2",
        "seed": 7,
        "batches_streamed": 1210,
        "parameter_count": 6,
        "bytes": (model_dir / "checkpoint_10.mdl").stat().st_size,
        "tensors": [
            {
                "key": "model.embedding_layer.word_embeddings.weight",
                "shape": [3, 2],
                "dtype": "float32",
                "bytes": 24,
                "sparse_shape": None,
            },
            {"key": "optimizer.exp_avg", "shape": [3, 2], "dtype": "float32", "bytes": 24, "sparse_shape": None},
        ],
        "links": {"model.lm_head.weight": "model.embedding_layer.word_embeddings.weight"},
        "values": ["global_step", "random", "dataloader", "__metadata__"],
    }


@pytest.fixture
def sparse(tmp_path):
    """A checkpoint with a sparse weight of 4 x 5, 3 of which are not zero."""
    numbers, positions = np.ones(3, np.float32), np.array([2, 7, 19], np.uint32)
    with CheckpointWriter(tmp_path / "sparse.mdl") as writer:
        writer.add_tensor("model.fc.weight.indices", (3,), "uint32", [positions])
        writer.add_tensor("model.fc.weight", (3,), "float32", [numbers])
        writer.add_tensor("optimizer.fc.weight.exp_avg", (3,), "float32", [numbers])
        writer.add_tensor("model.fc.bias", (4,), "float32", [np.zeros(4, np.float32)])
        writer.add_value("global_step", 3)
        writer.add_value("sparsity", {"fc.weight": {"shape": [4, 5], "algorithm": "set", "density": 0.15}})
    return tmp_path / "sparse.mdl"


@pytest.mark.parametrize(("flags", "name"), [((), "sparse"), (("--all",), "sparse_all")])
def test_info_says_how_sparse_a_weight_is(cstool, sparse, golden, flags, name):
    outcome = cstool("checkpoint", "info", str(sparse), *flags)
    assert (outcome.code, outcome.stderr) == (0, "")
    golden(f"cli/checkpoint_info_{name}.txt", without_sizes(outcome.stdout.replace(str(sparse.parent), "DIR")))


def test_zeros_count_as_parameters_in_json_and_positions_do_not(cstool, sparse):
    document = json.loads(cstool("checkpoint", "info", str(sparse), "--json").stdout)
    assert document["parameter_count"] == 4 * 5 + 4
    assert [tensor["sparse_shape"] for tensor in document["tensors"]] == [None, [4, 5], None, None]


def test_verify_says_that_all_checksums_are_right(cstool, model_dir):
    outcome = cstool("checkpoint", "info", str(model_dir / "checkpoint_10.mdl"), "--verify")
    assert "checksums   all right" in outcome.stdout.splitlines()


def test_verify_finds_a_damaged_tensor(cstool, model_dir):
    path = model_dir / "checkpoint_10.mdl"
    whole = path.read_bytes()
    at = whole.index(np.arange(6, dtype=np.float32).tobytes())
    path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
    outcome = cstool("checkpoint", "info", str(path), "--verify")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "model.embedding_layer.word_embeddings.weight" in outcome.stderr.splitlines()[0]
