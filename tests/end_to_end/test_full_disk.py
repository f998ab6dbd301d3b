"""`cstool run --memoryx file` on a disk that is too small, or that others fill: the last commit is as it was.

In the expected messages TMP is the folder of the test.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from cstool.training.machine.appliance import Appliance
from cstool.training.store import committed_step
from tests.end_to_end.disk import largest_file
from tests.end_to_end.memoryx_files import IN_FILE, run_small, small_params
from tests.end_to_end.refusals import error
from tests.end_to_end.runs import latest_bits

STEPS = 4
FILE = "TMP/model_dir/memoryx.h5"
FREE_SOME = "free some space, or choose another model_dir"


def params(folder: Path, data: Path, *, saved_every: int = STEPS) -> Path:
    changes = {"init__loop": {"max_steps": STEPS}, "init__checkpoint": {"steps": saved_every}, **IN_FILE}
    return small_params(folder, data, **changes)


@pytest.fixture(scope="module")
def straight(undisturbed) -> str:
    return undisturbed(small_params, run_small)


@pytest.fixture(scope="module")
def store_bytes(tmp_path_factory, data) -> int:
    """How large the file is."""
    folder = tmp_path_factory.mktemp("sized")
    run_small(params(folder, data))
    return (folder / "model_dir" / "memoryx.h5").stat().st_size


def counts_aside(text: str) -> str:
    """Return a text with N in place of every number: what is free depends on what logs take."""
    return re.sub(r"\b[\d,]+\b|(?<=_)\d+", "N", text)


@pytest.mark.lab
def test_a_run_that_does_not_fit_does_not_begin(cstool, tmp_path, data, store_bytes, make_disk):
    disk = make_disk(tmp_path / "model_dir", store_bytes - 2**15)
    outcome = cstool("run", "-p", params(tmp_path, data))
    message = f"{FILE}: MemoryX needs N bytes of disk, N are free"
    assert counts_aside(outcome.stderr) == error(message, f"{FREE_SOME}; memoryx.commit_steps: N needs about half")
    assert outcome.code == 2
    assert {path.name for path in disk.place.iterdir()} == {"cerebras_logs", "latest_run.log"}


def test_a_file_that_may_not_be_so_large(cstool, tmp_path, data, store_bytes):
    with largest_file(store_bytes // 2):
        outcome = cstool("run", "-p", params(tmp_path, data))
    message = f"{FILE}: cannot be laid out, got: File too large"
    assert (outcome.code, outcome.stderr) == (2, error(message, "raise the limit of file sizes (ulimit -f)"))
    assert {path.name for path in (tmp_path / "model_dir").iterdir()} == {"cerebras_logs", "latest_run.log"}


@pytest.mark.lab
def test_a_checkpoint_that_does_not_fit_leaves_the_commit_of_its_step(
    cstool, tmp_path, data, store_bytes, straight, make_disk
):
    disk = make_disk(tmp_path / "model_dir", store_bytes + 2**18)
    file = params(tmp_path, data, saved_every=2)
    outcome = cstool("run", "-p", file)
    assert outcome.code == 2
    assert counts_aside(outcome.stderr) == error(
        "TMP/model_dir/checkpoint_N.mdl: a checkpoint of N bytes must be writable here (N bytes are free), got: No "
        "space left on device",
        "free some space, or choose another model_dir; the previous checkpoint is untouched",
    )
    assert committed_step(disk.place / "memoryx.h5") in (2, 3)
    assert cstool("checkpoint", "verify", disk.place / "memoryx.h5").stdout == f"{FILE}: ok\n"
    disk.grow(2**30)
    assert cstool("run", "-p", file).code == 0
    assert latest_bits(disk.place) == straight


def test_a_disk_that_others_fill_leaves_the_commit_before(
    cstool, tmp_path, data, store_bytes, straight, make_disk, monkeypatch
):
    """What was set aside is there; the record of the next commit is not."""
    disk = make_disk(tmp_path / "model_dir", 2**22)
    train_step = Appliance.train_step

    def and_others_write(self: Appliance, batch: Any, step: int, rate: float) -> Any:
        if step == 3:
            self.memoryx.drain()
            disk.fill()
        return train_step(self, batch, step, rate)

    monkeypatch.setattr(Appliance, "train_step", and_others_write)
    file = params(tmp_path, data)
    outcome = cstool("run", "-p", file)
    message = f"{FILE}.commit: cannot be written, got: No space left on device"
    assert (outcome.code, outcome.stderr) == (2, error(message, FREE_SOME))
    assert committed_step(disk.place / "memoryx.h5") == 2
    assert cstool("checkpoint", "verify", disk.place / "memoryx.h5").stdout == f"{FILE}: ok\n"
    os.unlink(disk.place / "filler")
    monkeypatch.undo()
    run_small(file)
    assert latest_bits(disk.place) == straight
