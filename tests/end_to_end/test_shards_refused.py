"""Shards of MemoryX that cannot be gone on from, on two ranks: one error that says what to do, and all stays as it was.

Ranks are threads here. In the expected messages TMP is the folder of the test.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import CstoolError
from cstool.training.store import find_shards, shard_name
from cstool.training.store.file_layout import record_path
from tests.end_to_end.memoryx_files import IN_FILE, NEVER_SAVED, small_params
from tests.end_to_end.ranks import by_mpirun, run
from tests.end_to_end.refusals import error, kept
from tests.thread_ranks import run_ranks

RANKS = 2
FOLDER = "TMP/model_dir"
ONE, TWO = (f"{FOLDER}/{shard_name(node, RANKS)}" for node in range(RANKS))
DROP = f"cstool checkpoint delete {ONE} drops what is there"


def params(folder: Path, data: Path, steps: int = 4, **changes: Any) -> Path:
    """Write the params of a GPT of one layer with two grains to a batch, of which no checkpoint is made."""
    small = {"init__model__num_hidden_layers": 1, "init__loop": {"max_steps": steps}, **NEVER_SAVED, **IN_FILE}
    return small_params(folder, data, **small, init__backend__cluster_config={"num_csx": RANKS}, **changes)


@pytest.fixture(scope="module")
def written(tmp_path_factory, data) -> Path:
    """A folder with the model_dirs of two runs, and that of the first as it was two steps before."""
    folder = tmp_path_factory.mktemp("written")
    for name in ("run", "other"):
        run_ranks(params(folder / name, data, 1), RANKS)
        shutil.copytree(folder / name / "model_dir", folder / f"{name} before")
        run_ranks(params(folder / name, data, 3), RANKS)
    return folder


@pytest.fixture
def model_dir(tmp_path, written) -> Path:
    return Path(shutil.copytree(written / "run" / "model_dir", tmp_path / "model_dir"))


@pytest.fixture
def refused(tmp_path, data, model_dir) -> Callable[..., None]:
    """Check that a run on two ranks refuses with just this message, and leaves all files as they were."""

    def check(message: str, hint: str | None, **flags: Any) -> None:
        before = kept(model_dir)
        with pytest.raises(CstoolError) as caught:
            run_ranks(params(tmp_path, data), RANKS, **flags)
        said = [str(text).replace(str(tmp_path), "TMP") for text in (caught.value.message, caught.value.hint)]
        assert said == [message, str(hint)]
        assert kept(model_dir) == before

    return check


BACK = f"bring back those that belong together; or {DROP}"
OF_ONE_RUN = "the shards of MemoryX must be of one run, memoryx_1_of_2.h5 and memoryx_2_of_2.h5 are of different ones"
IN_COMMON = "must hold a step in common, memoryx_1_of_2.h5 holds step 3 and 2, memoryx_2_of_2.h5 holds step 1"
MISSING = "this shard of MemoryX must be at one of the 2 ranks, as memoryx_1_of_2.h5 is, it is not"
SHARDS = {
    "": (f"{TWO}: {MISSING}", f"run on the hosts that have all 2 of them; or {DROP}"),
    "other/model_dir": (f"{FOLDER}: {OF_ONE_RUN}", BACK),
    "run before": (f"{FOLDER}: the shards of MemoryX {IN_COMMON}", f"one of them is an older copy: {BACK}"),
}
"""what takes the place of the second shard -> what is said"""


@pytest.mark.parametrize("source", SHARDS)
def test_a_shard_is_missing_of_another_run_or_an_older_copy(refused, written, model_dir, source):
    for name in (shard_name(1, RANKS), record_path(Path(shard_name(1, RANKS))).name):
        if source:
            shutil.copy(written / source / name, model_dir)
        else:
            (model_dir / name).unlink()
    refused(*SHARDS[source])


def test_a_shard_or_its_commit_record_is_cut_short(refused, model_dir):
    path = model_dir / shard_name(1, RANKS)
    path.write_bytes(path.read_bytes()[:5000])
    refused(f"rank 1: {TWO}: the MemoryX file is damaged or cut short", None)
    path = record_path(model_dir / shard_name(0, RANKS))
    path.write_bytes(path.read_bytes()[:100])
    refused(
        f"{ONE}.commit: the commit record is damaged or cut short",
        "bring back a copy of it and of its shard, or have cstool checkpoint delete drop the shard",
    )


def test_a_fresh_start_over_shards_that_no_checkpoint_has(refused):
    refused(
        f"{ONE}: holds step 3, which no checkpoint has, and this run would replace it",
        f"cstool checkpoint copy {ONE} {FOLDER}/checkpoint_3.mdl keeps it as a checkpoint, cstool checkpoint delete "
        f"{ONE} drops it; or choose another --model_dir",
        trainer__init__checkpoint__autoload_last_checkpoint=False,
    )


def test_no_nodes_at_all(cstool, tmp_path, data):
    expected = error("--memoryx_nodes: must be at least 1, got 0")
    assert cstool("run", "-p", params(tmp_path, data), "--memoryx_nodes", 0) == (2, "", expected)


@pytest.mark.lab
def test_more_nodes_than_ranks_are_all_of_them(tmp_path, data):
    said = run(*by_mpirun(params(tmp_path, data, 1), "--memoryx_nodes", "5"))
    assert (said.exit_code, said.errors) == (0, "")
    assert [shard.name for shard in find_shards(tmp_path / "model_dir")] == [shard_name(0, 2), shard_name(1, 2)]
