"""Checkpoints that cannot be read, do not fit or cannot be written: the ones before stay as they were.

In the expected messages TMP is the folder of the test.
"""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from cstool.runtime.appliance import Appliance
from cstool.store.pending_file import PendingFile
from tests.end_to_end.refusals import Outcome, error, kept
from tests.end_to_end.runs import gpt_params, latest_bits, run_file

EVERY_STEP = {"init__checkpoint": {"steps": 1}}
SECOND = "TMP/model_dir/checkpoint_2.mdl"
OLDER = "go on from the newest one that is whole: --checkpoint_path TMP/model_dir/checkpoint_1.mdl"
OTHER_MODEL = "the checkpoint is of another model: choose another --model_dir to start fresh, or another checkpoint"
LAYERS = "transformer_decoder.layers"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A model_dir with the checkpoints of two steps."""
    folder = tmp_path_factory.mktemp("trained")
    run_file(gpt_params(folder, data, init__loop={"max_steps": 2}, **EVERY_STEP))
    return folder / "model_dir"


@pytest.fixture
def model_dir(tmp_path: Path, trained: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "model_dir"))


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:3000])


def write_something_else(file: Path) -> None:
    file.write_bytes(b"hello" * 3000)


def write_other_hdf5(file: Path) -> None:
    with h5py.File(file, "w") as h5:
        h5["x"] = [1, 2, 3]


def damage_a_tensor(file: Path) -> None:
    with h5py.File(file) as h5:
        offset = h5["model.transformer_decoder.norm.bias"].id.get_offset()
    content = bytearray(file.read_bytes())
    content[offset : offset + 4] = b"\0\0\0\7"
    file.write_bytes(content)


DAMAGED = [
    (cut_short, f"{SECOND}: the checkpoint is damaged or cut short (3000 bytes)"),
    (Path.unlink, f"{SECOND}: a checkpoint must be a file that can be read, got: No such file or directory"),
    (write_something_else, f"{SECOND}: a checkpoint must be an HDF5 file, this one is not"),
    (write_other_hdf5, f"{SECOND}: must be a checkpoint, this is an HDF5 file of another kind"),
]
