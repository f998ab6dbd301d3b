"""Checkpoints that cannot be read, do not fit or cannot be written: the ones before stay as they were.

In the expected messages TMP is the folder of the test.
"""

import shutil
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.training.machine.appliance import Appliance
from cstool.training.store.pending_file import PendingFile
from tests.end_to_end.disk import DiskUsage, largest_file
from tests.end_to_end.refusals import error, kept, rows
from tests.end_to_end.runs import gpt_params, latest_bits, run_file
from tests.unit.training.machine.machines import rewrite
from tests.unit.training.store.stored import without_digest

EVERY_STEP = {"init__checkpoint": {"steps": 1}}
SECOND = "TMP/model_dir/checkpoint_2.mdl"
OLDER = "go on from the newest one that is whole: --checkpoint_path TMP/model_dir/checkpoint_1.mdl"
NONE_IS_WHOLE = "no other checkpoint here is whole: choose another --model_dir to start fresh"
OTHER_MODEL = "the checkpoint is of another model: choose another --model_dir to start fresh, or another checkpoint"
TENSOR = "model.transformer_decoder.norm.bias"
LAYERS = "transformer_decoder.layers"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> Path:
    """A model_dir with the checkpoints of two steps."""
    folder = tmp_path_factory.mktemp("trained")
    run_file(gpt_params(folder, data, init__loop={"max_steps": 2}, **EVERY_STEP))
    return folder / "model_dir"


def cut_short(file: Path) -> str:
    file.write_bytes(file.read_bytes()[:3000])
    return "the checkpoint is damaged or cut short (3000 bytes)"


def damage_a_tensor(file: Path) -> str:
    """Change a byte of a tensor; return what is to be said of its checksum."""
    with h5py.File(file) as h5:
        offset, checksum = h5[TENSOR].id.get_offset(), int(h5[TENSOR].attrs["crc32"])
        size_bytes = h5[TENSOR].nbytes
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)
    found = zlib.crc32(content[offset : offset + size_bytes])
    return f"{TENSOR} is damaged: its checksum must be {checksum:08x}, got {found:08x}"


def put(key: str, value: Any) -> Callable[[Path], str]:
    """Have a value in it that a run looks up, where a mapping must be."""

    def spoil(file: Path) -> str:
        rewrite(file.rename(file.parents[1] / "aside.mdl"), file, **{key: value})
        return f"{key} must be a mapping, got {value}"

    return spoil


@pytest.mark.parametrize("spoil", [cut_short, damage_a_tensor, put("choices", None), put("random", [])])
def test_a_spoiled_latest_checkpoint_is_refused_with_the_way_to_go_on(refused, model_dir, spoil):
    refused(f"{SECOND}: {spoil(model_dir / 'checkpoint_2.mdl')}", OLDER, **EVERY_STEP)


def test_a_run_that_goes_on_from_the_older_one_ends_with_the_bits_of_a_straight_run(cstool, tmp_path, data, model_dir):
    cut_short(model_dir / "checkpoint_2.mdl")
    older = model_dir / "checkpoint_1.mdl"
    assert cstool("run", "-p", gpt_params(tmp_path, data, **EVERY_STEP), "--checkpoint_path", older).code == 0
    straight = gpt_params(tmp_path / "straight", data)
    run_file(straight)
    assert latest_bits(model_dir) == latest_bits(tmp_path / "straight" / "model_dir")


def test_where_no_checkpoint_is_whole_the_way_on_is_another_folder(refused, model_dir):
    _, rule = (cut_short(model_dir / f"checkpoint_{step}.mdl") for step in (1, 2))
    refused(f"{SECOND}: {rule}", NONE_IS_WHOLE)


@pytest.mark.usefixtures("model_dir")
def test_a_checkpoint_of_another_model_is_refused(refused):
    rule = f"lacks the weight {LAYERS}.2.norm1.weight of this model"
    for mode in ("train", "eval"):
        refused(f"{SECOND}: {rule}", OTHER_MODEL, "--mode", mode, init__model__num_hidden_layers=3)


NO_CHECKPOINTS = rows("""\
no.mdl => /no.mdl: a checkpoint must be a file that can be read, got: No such file or directory
    hint: cstool checkpoint list shows the checkpoints of a folder
. => : a checkpoint must be a file, this is a folder
    hint: name one of the .mdl files in it; cstool checkpoint list shows them
params.yaml => /params.yaml: a checkpoint must be an HDF5 file, this one is not
    hint: checkpoints of cstool are called checkpoint_{step}.mdl
""")


@pytest.mark.parametrize(("path", "message"), NO_CHECKPOINTS)
@pytest.mark.parametrize("command", ["run -p TMP/params.yaml --checkpoint_path", "checkpoint info"])
def test_a_path_that_is_no_checkpoint_is_refused(cstool, tmp_path, data, command, path, message):
    gpt_params(tmp_path, data)
    outcome = cstool(*command.replace("TMP", str(tmp_path)).split(), tmp_path / path)
    assert (outcome.code, outcome.stderr, kept(tmp_path / "model_dir")) == (2, error(f"TMP{message}"), {})


def test_an_evaluation_that_finds_no_checkpoint_is_refused(refused):
    hint = "--model_dir or --checkpoint_path says where one is"
    refused("TMP/model_dir: has no checkpoint to evaluate", hint, "--mode", "eval")


@pytest.mark.parametrize("path", ["file", "file/model_dir"])
def test_a_file_in_the_place_of_the_model_dir_is_refused_and_stays(cstool, tmp_path, data, path):
    (tmp_path / "file").write_text("mine")
    rule = f"TMP/{path}: model_dir must be a folder that can be written, got: Not a directory"
    expected = error(rule, "choose another one with --model_dir")
    outcome = cstool("run", "-p", gpt_params(tmp_path, data), "--model_dir", tmp_path / path)
    assert (outcome, (tmp_path / "file").read_text()) == ((2, "", expected), "mine")


def test_a_model_dir_that_was_copied_with_its_links_followed_can_go_on(cstool, tmp_path, data):
    file = gpt_params(tmp_path, data, init__loop={"max_steps": 1})
    assert cstool("run", "-p", file).code == 0
    shutil.copytree(tmp_path / "model_dir", tmp_path / "copy")
    outcome = cstool("run", "-p", file, "--model_dir", tmp_path / "copy", "--max_steps", 2)
    assert (outcome.code, outcome.stderr) == (0, "")


def test_a_disk_that_fills_up_while_saving_keeps_the_checkpoints_before(cstool, tmp_path, data, model_dir, monkeypatch):
    before = kept(model_dir)
    file = gpt_params(tmp_path, data, **EVERY_STEP)
    monkeypatch.setattr("cstool.training.store.checkpoint_writer.shutil.disk_usage", lambda _: DiskUsage(10**9))
    with largest_file(200_000):
        outcome = cstool("run", "-p", file)
    message = error(
        "TMP/model_dir/checkpoint_3.mdl: a checkpoint of 1328128 bytes must be writable here (1000000000 bytes are "
        "free), got: File too large",
        "raise the limit of file sizes (ulimit -f); the previous checkpoint is untouched",
    )
    assert (outcome.code, outcome.stderr, kept(model_dir)) == (2, message, before)


def test_nan_names_the_step_and_the_first_bad_tensor_and_keeps_the_checkpoint_before(cstool, tmp_path, data):
    file = gpt_params(tmp_path, data, init__optimizer={"AdamW": {"learning_rate": 1e30}}, **EVERY_STEP)
    outcome = cstool("run", "-p", file)
    assert (outcome.code, outcome.stderr) == (1, error(
        f"step 2: the loss is not finite; the first tensor that is not: activation {LAYERS}.0.norm1.y, the output of "
        f"{LAYERS}.0.norm1",
        "a lower learning rate, max_gradient_norm or a longer warm-up may help",
    ))  # fmt: skip
    assert sorted(kept(tmp_path / "model_dir")) == ["checkpoint_1.mdl", "checkpoints_index.yaml"]


@pytest.mark.parametrize(("owner", "method"), [(Appliance, "train_step"), (PendingFile, "commit")])
def test_a_second_sigint_stops_at_once_and_leaves_nothing_half_written(
    cstool, tmp_path, data, model_dir, monkeypatch, owner, method
):
    before, original = kept(model_dir), getattr(owner, method)

    def interrupted(*arguments: Any) -> Any:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(owner, method, interrupted)
    outcome = cstool("run", "-p", gpt_params(tmp_path, data, **EVERY_STEP))
    assert (outcome.code, outcome.stderr, kept(model_dir)) == (130, "interrupted\n", before)


# Sparse weights in a checkpoint that does not fit.


SPARSE_ONE = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight"
TOPK = {"sparsity": 0.75, "init_method": "topk"}
MODEL_ALONE = "--load_checkpoint_states model takes the weights alone"


@pytest.fixture(scope="module")
def both(tmp_path_factory, data) -> dict[str, Path]:
    """The checkpoints of two steps, sparse and dense."""
    found, steps = {}, {"init__loop": {"max_steps": 2}, "init__checkpoint": {"steps": 2}}
    for name, sparsity in (("sparse", TOPK), ("dense", [])):
        folder = tmp_path_factory.mktemp(name)
        run_file(gpt_params(folder, data, init__sparsity=sparsity, **steps))
        found[name] = folder / "model_dir" / "checkpoint_2.mdl"
    return found


@pytest.fixture
def copied(tmp_path, both) -> Callable[[str], Path]:
    """Have a copy of one of them in the model_dir."""

    def copy(name: str) -> Path:
        (tmp_path / "model_dir").mkdir()
        return Path(shutil.copy(both[name], tmp_path / "model_dir"))

    return copy


def test_what_does_not_go_with_a_run_is_refused_and_the_hint_is_a_way_on(refused, cstool, tmp_path, data, copied):
    """`tests/unit/training/machine/test_sparse_state.py` has all that is said, and what becomes of the numbers."""
    checkpoint = copied("dense")
    rule = f"{SPARSE_ONE} must be sparse, as in this run, got a dense one without a mask"
    hint = f"{MODEL_ALONE}, and init_method: topk keeps the largest"
    refused(f"{SECOND}: {rule}", hint, init__sparsity={"sparsity": 0.75})
    file = gpt_params(tmp_path, data, init__sparsity=TOPK, init__loop={"max_steps": 1})
    asked = ("--checkpoint_path", checkpoint, "--load_checkpoint_states", "model", "--model_dir", tmp_path / "next")
    assert cstool("run", "-p", file, *asked).said


def test_a_sparse_checkpoint_is_evaluated_alike_by_a_sparse_and_by_a_dense_file(tmp_path, data, copied):
    copied("sparse")
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
def test_indices_that_no_run_would_write_are_refused(cstool, refused, copied, places, values, rule, sparsity, mode):
    """Though their checksum is theirs, and no digest binds it."""
    checkpoint = copied("sparse")
    with h5py.File(checkpoint, "r+") as h5:
        dataset = h5[f"model.{SPARSE_ONE}.indices"]
        indices = dataset[:]
        indices[places] = values
        dataset[:] = indices
        dataset.attrs["crc32"] = np.uint32(zlib.crc32(indices.tobytes()))
    without_digest(checkpoint)
    refused(f"{SECOND}: model.{SPARSE_ONE}.indices {rule}", NONE_IS_WHOLE, "--mode", mode, init__sparsity=sparsity)
    verified = cstool("checkpoint", "verify", checkpoint)
    assert verified == (1, f"{SECOND}: model.{SPARSE_ONE}.indices {rule}\n", "")
