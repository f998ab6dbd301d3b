"""What is told about a checkpoint."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import cstool
from cstool.errors import CheckpointError
from cstool.store import CheckpointInfo, CheckpointWriter, TensorInfo, describe_checkpoint

WriteCheckpoint = Callable[..., Path]


def test_a_checkpoint_is_described(write_checkpoint: WriteCheckpoint) -> None:
    path = write_checkpoint()
    os.utime(path, (0, 0))
    assert describe_checkpoint(path) == CheckpointInfo(
        path=path,
        version="1.0",
        cstool_version=cstool.__version__,
        step=3,
        model_name="gpt2",
        seed=None,
        batches_streamed=None,
        parameter_count=12,
        bytes=path.stat().st_size,
        created=datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        tensors=(
            TensorInfo("model.weight", (4, 3), "float32", 48),
            TensorInfo("optimizer.count", (), "int64", 8),
        ),
        links={"model.tied": "model.weight"},
        values=("global_step", "__metadata__"),
    )


def test_seed_and_batches_streamed_are_those_of_the_run(tmp_path: Path) -> None:
    with CheckpointWriter(tmp_path / "a.mdl") as writer:
        writer.add_value("random", {"seed": 5, "generator": "philox4x32-10"})
        writer.add_value("dataloader", {"batches_streamed": 30, "batch_size": 8})
    info = describe_checkpoint(tmp_path / "a.mdl")
    assert (info.seed, info.batches_streamed) == (5, 30)


@pytest.mark.parametrize("metadata", [None, [], [{"version": "1"}], {"model_name": "a"}, [{"model_name": 5}]])
def test_what_a_checkpoint_does_not_say_is_none(tmp_path: Path, metadata: object) -> None:
    with CheckpointWriter(tmp_path / "a.mdl") as writer:
        writer.add_value("__metadata__", metadata)
    info = describe_checkpoint(tmp_path / "a.mdl")
    assert (info.step, info.model_name) == (None, None)


def test_checksums_are_verified_when_asked_for(write_checkpoint: WriteCheckpoint) -> None:
    path = write_checkpoint()
    contents = path.read_bytes()
    path.write_bytes(contents.replace(b"\x07\0\0\0\0\0\0\0", b"\x08\0\0\0\0\0\0\0"))
    describe_checkpoint(path)
    with pytest.raises(CheckpointError, match="optimizer.count is damaged: its checksum"):
        describe_checkpoint(path, verify=True)
