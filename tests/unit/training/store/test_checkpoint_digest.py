"""The parts of a checkpoint belong together: whatever comes from another file, or from elsewhere in it, is found."""

import itertools
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from cstool.foundation.errors import DamagedCheckpointError
from cstool.training.store import CheckpointReader, copy_checkpoint, unbound_note
from tests.contract.refusal import refusal
from tests.unit.training.store.conftest import WEIGHT
from tests.unit.training.store.stored import without_digest, write_state

EARLIER = "take an earlier checkpoint"
LONG = 40_000
"""characters of a value that is a dataset of its own"""


def write(path: Path, step: int) -> Path:
    """Write a checkpoint whose every part tells the step."""
    names = "model.a", "model.b", "optimizer.a.exp_avg", "optimizer.b.exp_avg"
    tensors = dict.fromkeys(names, np.full((4, 3), step + 16, np.float32)) | {"model.c": WEIGHT + step}
    values = {"global_step": step, "dataloader": {"batches_streamed": step, "batch_size": 2}}
    return write_state(path, tensors, {"model.tied": "model.a"}, {**values, "long": [step, "x" * LONG]})


@pytest.fixture
def path(tmp_path) -> Path:
    return write(tmp_path / "checkpoint_3.mdl", 3)


def take(key: str) -> Callable[[h5py.File, h5py.File], None]:
    """Return what puts a dataset of another checkpoint in the place of one, with its checksum."""

    def change(file: h5py.File, other: h5py.File) -> None:
        found = other[key]
        del file[key]
        file.create_dataset(key, data=found[()]).attrs.update(dict(found.attrs))

    return change


def swap(file: h5py.File, _: h5py.File) -> None:
    for old, new in (("model.a", "aside"), ("model.c", "model.a"), ("aside", "model.c")):
        file.move(old, new)


def describe(key: str, described: object) -> Callable[[h5py.File, h5py.File], None]:
    def change(file: h5py.File, _: h5py.File) -> None:
        file.attrs[f"{key}.__metadata__"] = np.bytes_(json.dumps(described).encode())

    return change


def drop(file: h5py.File, _: h5py.File) -> None:
    keys = [key for key in json.loads(file.attrs["__spec__"]) if not key.startswith("optimizer.")]
    file.attrs["__spec__"] = np.bytes_(json.dumps(keys).encode())


def cast(file: h5py.File, _: h5py.File) -> None:
    """Have the same bytes mean other numbers."""
    data = file["model.c"][()].view(np.int32)
    del file["model.c"]
    dataset = file.create_dataset("model.c", data=data)
    dataset.attrs["dtype"], dataset.attrs["shape"] = np.bytes_(b"int32"), np.bytes_(b"[4, 3]")
    dataset.attrs["crc32"] = np.uint32(zlib.crc32(data.tobytes()))


def version(file: h5py.File, _: h5py.File) -> None:
    file.attrs["__cstool_version__"] = np.bytes_(b"0.0.9")


@pytest.mark.parametrize(
    "change",
    [
        swap,
        take("model.c"),
        take("optimizer.b.exp_avg"),
        take("long.__metadata__"),
        describe("global_step", {"kind": "value", "value": 4}),
        describe("dataloader", {"kind": "value", "value": {"batches_streamed": 4, "batch_size": 2}}),
        describe("model.tied", {"kind": "link", "target": "model.b"}),
        describe("model.tied", {"kind": "value", "value": "model.a"}),
        drop,
        cast,
        version,
    ],
)
def test_a_part_from_elsewhere_is_found(path, change):
    with h5py.File(path, "r+") as file, h5py.File(write(path.with_name("checkpoint_4.mdl"), 4)) as theirs:
        change(file, theirs)
    with pytest.raises(DamagedCheckpointError) as caught:
        CheckpointReader(path)
    start = f"{path}: its keys, checksums and values must be those that were written together, with the digest "
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{16}, got [0-9a-f]{16}", caught.value.message)
    assert caught.value.hint == EARLIER


def test_keys_in_another_order_are_found(path):
    with h5py.File(path, "r+") as file:
        file.attrs["__spec__"] = np.bytes_(json.dumps(json.loads(file.attrs["__spec__"])[::-1]).encode())
    message = f"{path}: model.tied is damaged: it must be a link to a tensor before it, got model.a"
    with refusal(DamagedCheckpointError, message, EARLIER):
        CheckpointReader(path)


def test_a_checkpoint_of_this_version_has_a_digest(path):
    with h5py.File(path, "r+") as file:
        del file.attrs["__digest__"]
    message = f"{path}: the checkpoint is damaged or cut short ({path.stat().st_size} bytes)"
    with refusal(DamagedCheckpointError, message, EARLIER):
        CheckpointReader(path)


def test_bytes_spliced_in_from_another_step_are_found(path, tmp_path):
    """Any run of blocks of the file, which has the same layout at every step."""
    ours, theirs = path.read_bytes(), write(tmp_path / "checkpoint_4.mdl", 4).read_bytes()
    spliced = tmp_path / "spliced.mdl"
    assert len(ours) == len(theirs)
    block = -(-len(ours) // 16)
    found = 0
    for first, last in itertools.combinations(range(17), 2):
        start, stop = first * block, last * block
        content = ours[:start] + theirs[start:stop] + ours[stop:]
        if content in (ours, theirs):
            continue
        spliced.write_bytes(content)
        with pytest.raises(DamagedCheckpointError), CheckpointReader(spliced) as reader:
            reader.verify_all()
        found += 1
    assert found > 40


def test_a_checkpoint_without_a_digest_is_read_and_that_is_said(path, tmp_path):
    with CheckpointReader(path) as reader:
        assert (reader.format_version, reader.is_bound, unbound_note(reader)) == ("1.1", True, None)
        values = reader.values()
    with CheckpointReader(without_digest(path)) as reader:
        reader.verify_all()
        assert (reader.format_version, reader.is_bound, reader.values()) == ("1.0", False, values)
        assert unbound_note(reader) == (
            f"{path} is of format 1.0, without a digest: its parts are whole, but nothing says that they belong "
            "together."
        )
    with CheckpointReader(copy_checkpoint(path, tmp_path / "copy.mdl")) as reader:
        assert reader.is_bound


@pytest.mark.parametrize("value", [{1: [(1, 2.5)], None: float("inf")}, "ä\ud800", 2**80, {"b": 1, "a": -0.0}])
def test_values_are_bound_as_json_has_them(tmp_path, value):
    with CheckpointReader(write_state(tmp_path / "a.mdl", values={"value": value})) as reader:
        assert json.dumps(reader.value("value")) == json.dumps(value)
