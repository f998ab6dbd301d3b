"""A checkpoint is written whole or not at all, and whatever goes wrong, the previous one stays."""

import errno
import json
import os
import resource
import shutil
import signal
import zlib
from collections import namedtuple
from typing import Any

import h5py
import numpy as np
import pytest

import cstool
from cstool.foundation.errors import CheckpointError
from cstool.training.store import CheckpointReader, CheckpointWriter, sweep_temporary
from cstool.training.store.checkpoint_format import DTYPES
from cstool.training.store.checkpoint_writer import METADATA_BYTES
from tests.contract.refusal import failing, refusal
from tests.unit.training.store.stored import forked

Usage = namedtuple("Usage", "total used free")


def test_a_checkpoint_is_plain_hdf5_and_has_the_same_bytes_again(write_checkpoint, weight):
    """Contiguous datasets named by their keys, each described in an attribute of the file."""
    path = write_checkpoint()
    assert path.read_bytes() == write_checkpoint("again.mdl").read_bytes()
    with h5py.File(path) as file:
        assert {key: file[key].chunks for key in file} == {"model.weight": None, "optimizer.count": None}
        assert (file["model.weight"][:] == weight).all()
        crc32 = zlib.crc32(weight.tobytes())
        assert dict(file["model.weight"].attrs) == {"dtype": b"float32", "shape": b"[4, 3]", "crc32": crc32}
        found = {name: file.attrs[name] for name in ("__version__", "__cstool_version__", "__SUCCESS__")}
        assert found == {"__version__": b"1.1", "__cstool_version__": cstool.__version__.encode(), "__SUCCESS__": True}
        spec = json.loads(file.attrs["__spec__"])
        assert spec == ["model.weight", "model.tied", "optimizer.count", "global_step", "__metadata__"]
        described = [json.loads(file.attrs[f"{key}.__metadata__"]) for key in ("model.weight", "model.tied", spec[3])]
    value = {"kind": "value", "value": 3}
    assert described == [{"kind": "tensor"}, {"kind": "link", "target": "model.weight"}, value]


def test_long_json_is_a_dataset_and_only_a_temporary_file_is_seen_while_it_is_written(tmp_path):
    with CheckpointWriter(tmp_path / "a.mdl") as writer:
        writer.add_value("long", "x" * 100_000)
        assert [path.suffix for path in tmp_path.iterdir()] == [".tmp"]
    assert os.listdir(tmp_path) == ["a.mdl"]
    with h5py.File(tmp_path / "a.mdl") as file:
        assert file["long.__metadata__"][:].tobytes() == b'"' + b"x" * 100_000 + b'"'


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, OSError])
def test_an_exception_of_who_hands_out_chunks_passes_unchanged_and_leaves_nothing(tmp_path, kind):
    def chunks() -> Any:
        yield np.zeros(1, np.float32)
        raise kind("stop")

    with refusal(kind, "stop"), CheckpointWriter(tmp_path / "a.mdl") as writer:
        writer.add_tensor("a", (2,), "float32", chunks())
    assert os.listdir(tmp_path) == []


# What a caller can do wrong.


ROWS = "a: a chunk must be rows of (2, 3) float32, got"
TOGETHER = "a: the chunks must have 2 rows together, they do not"
PIECES = "a: the pieces must make up (2, 3) float32,"
POINT = "a: a link must point to a tensor that was added before, got"


TENSOR, KNOWN = ("a", (2, 3), "float32"), ", ".join(DTYPES)


@pytest.mark.parametrize(
    ("add", "given", "message"),
    [
        ("add_tensor", (*TENSOR, [np.zeros((2, 3))]), f"{ROWS} (2, 3) float64"),
        ("add_tensor", (*TENSOR, [np.zeros((2, 2), np.float32)]), f"{ROWS} (2, 2) float32"),
        ("add_tensor", (*TENSOR, [np.zeros(3, np.float32)]), f"{ROWS} (3,) float32"),
        ("add_tensor", (*TENSOR, [np.zeros((1, 3), np.float32)]), TOGETHER),
        ("add_tensor", (*TENSOR, [np.zeros((2, 3), np.float32)] * 2), TOGETHER),
        ("add_tensor", (*TENSOR, []), TOGETHER),
        ("add_pieces", (*TENSOR, [np.zeros(6)]), f"{PIECES} there is more of float64"),
        ("add_pieces", (*TENSOR, [np.zeros(5, np.float32)]), f"{PIECES} 4 bytes are missing"),
        ("add_pieces", (*TENSOR, [np.zeros(3, np.float32)] * 3), f"{PIECES} there is more of float32"),
        ("add_tensor", ("a", (2,), "complex64", []), f"a: the dtype of a tensor must be one of {KNOWN}, got complex64"),
        ("add_value", ("value", 2), "value: a key must be added once, it is there already"),
        ("link", ("a", "missing"), f"{POINT} missing"),
        ("link", ("a", "value"), f"{POINT} value"),
    ],
)
def test_what_makes_no_checkpoint_is_refused(tmp_path, add, given, message):
    with refusal(ValueError, message), CheckpointWriter(tmp_path / "a.mdl") as writer:
        writer.add_value("value", 1)
        getattr(writer, add)(*given)


def test_a_tensor_may_come_in_pieces_without_rows(tmp_path, weight):
    elements = weight.reshape(-1)
    with CheckpointWriter(tmp_path / "a.mdl") as writer:
        writer.add_pieces("a", weight.shape, "float32", [elements[:5], elements[5:6], elements[6:]])
        writer.add_pieces("b", (), "float32", [elements[:1]])
    with h5py.File(tmp_path / "a.mdl") as file:
        assert (file["a"][:].tolist(), file["b"][()]) == (weight.tolist(), weight[0, 0])
        assert file["a"].attrs["crc32"] == zlib.crc32(weight.tobytes())


# What a user meets.


@pytest.mark.parametrize("meanwhile", [False, True])
def test_another_checkpoint_is_never_overwritten(tmp_path, meanwhile):
    path = tmp_path / "a.mdl"
    if not meanwhile:
        path.write_text("of another run")
    message, hint = f"Checkpoint at '{path}' already exists", "delete it or choose another name"
    with refusal(CheckpointError, message, hint), CheckpointWriter(path):
        path.write_text("of another run")
    assert {found.name: found.read_text() for found in tmp_path.iterdir()} == {"a.mdl": "of another run"}


@pytest.mark.parametrize(
    ("number", "free", "remedy"),
    [
        (errno.ENOSPC, 500, "free some space, or choose another model_dir; "),
        (errno.EACCES, 10**9, "choose a model_dir that can be written; "),
        (errno.EROFS, 10**9, "choose a model_dir that can be written; "),
        (errno.EDQUOT, 10**9, "free some space, or choose another model_dir; "),
        (errno.EIO, 10**9, ""),
        (errno.ENOENT, None, "create the folder first; "),
    ],
)
def test_a_folder_that_cannot_be_written_is_named_before_any_writing(tmp_path, monkeypatch, number, free, remedy):
    path = tmp_path / ("a.mdl" if free else "missing/a.mdl")
    if free:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 0, free))
    if free == 10**9:
        monkeypatch.setattr(os, "open", failing(number))
    seen = f"{free} bytes are free" if free else "the folder cannot be looked at"
    needed = f"a checkpoint of {1000 + METADATA_BYTES} bytes must be writable here ({seen})"
    message = f"{path}: {needed}, got: {os.strerror(number)}"
    with refusal(CheckpointError, message, f"{remedy}the previous checkpoint is untouched"):
        CheckpointWriter(path, 1000)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("call", "number", "after"),
    [
        *(("pwrite", errno.ENOSPC, after) for after in range(0, 18, 3)),
        *((call, errno.EIO, 0) for call in ("fsync", "ftruncate", "link", "posix_fallocate")),
    ],
)
def test_a_disk_that_fails_at_any_call_leaves_nothing(write_checkpoint, tmp_path, monkeypatch, call, number, after):
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number, after, getattr(os, call)))
        with pytest.raises(CheckpointError, match=f"got: {os.strerror(number)}") as caught:
            write_checkpoint()
    remedy = "free some space, or choose another model_dir; " if number == errno.ENOSPC else ""
    assert (caught.value.hint, os.listdir(tmp_path)) == (f"{remedy}the previous checkpoint is untouched", [])


@pytest.mark.parametrize("total_bytes", [0, 1_000_000])
def test_a_real_limit_of_the_file_size_ends_in_an_error_and_no_crash(tmp_path, total_bytes):
    hint = "raise the limit of file sizes (ulimit -f); the previous checkpoint is untouched"

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
        caught = pytest.raises(CheckpointError, match="got: File too large")
        with caught as error, CheckpointWriter(tmp_path / "a.mdl", total_bytes) as writer:
            for number in range(4):
                writer.add_tensor(f"t.{number}", (500_000,), "uint8", [np.ones(500_000, np.uint8)])
        assert error.value.hint == hint

    assert (forked(write), os.listdir(tmp_path)) == (0, [])


def test_a_killed_writer_leaves_the_previous_checkpoint_and_a_temporary_file_to_sweep(write_checkpoint, tmp_path):
    previous = write_checkpoint("checkpoint_1.mdl")

    def chunks() -> Any:
        yield np.ones((1, 1000), np.float32)
        os.kill(os.getpid(), signal.SIGKILL)

    def write() -> None:
        with CheckpointWriter(tmp_path / "checkpoint_2.mdl", 8000) as writer:
            writer.add_tensor("model.weight", (2, 1000), "float32", chunks())

    assert forked(write) == -signal.SIGKILL
    (left,) = tmp_path.glob("*.tmp")
    with CheckpointReader(previous) as reader:
        reader.verify_all()
    os.utime(left, (0, 0))
    assert (sweep_temporary(tmp_path), os.listdir(tmp_path)) == ([left], [previous.name])
