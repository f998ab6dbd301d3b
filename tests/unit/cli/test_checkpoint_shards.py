"""The checkpoint commands with a MemoryX that is spread over several files: one of them stands for all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cstool.inference.verbs.answer import _checkpoint
from cstool.training.store import CommittedStore, copy_checkpoint
from cstool.training.store.file_layout import lock_path, record_path
from cstool.training.store.store_lock import StoreLock
from tests.end_to_end.refusals import Outcome, error
from tests.unit.training.store.stored import MODEL, checkpoint_of_one_file, write_shards

Cstool = Callable[..., Outcome]


@pytest.fixture
def model_dir(tmp_path) -> Path:
    """A folder with three shards of the steps 1 to 3."""
    write_shards(tmp_path / "model_dir", 3)
    return tmp_path / "model_dir"


@pytest.fixture
def shards(model_dir) -> list[Path]:
    return [model_dir / f"memoryx_{node}_of_3.h5" for node in (1, 2, 3)]


def listed(cstool: Cstool, folder: Path) -> str:
    return cstool("checkpoint", "list", folder).said


def remove(path: Path) -> None:
    for file in (path, record_path(path)):
        file.unlink()


def test_a_list_says_how_many_shards_there_are_and_of_which_step(cstool: Cstool, model_dir, shards):
    assert listed(cstool, model_dir) == "MemoryX: 3 shards, committed at step 3\n"
    found = {"nodes": 3, "paths": [*map(str, shards)], "missing": [], "step": 3, "ahead": [], "error": None}
    document = cstool("checkpoint", "list", model_dir, "--json").document
    assert document == {"checkpoints": [], "memoryx": None, "shards": [found]}


STEPS = [
    ({0: 3, 1: 2, 2: 2}, "3 shards, committed at step 2; memoryx_1_of_3.h5 is at a later one"),
    ({0: 3, 1: 2, 2: 3}, "3 shards, committed at step 2; memoryx_1_of_3.h5 and memoryx_3_of_3.h5 are at a later one"),
    ({0: 3, 1: 1, 2: 3}, "3 shards, which hold no step in common"),
]


@pytest.mark.parametrize(("steps", "said"), STEPS)
def test_a_list_says_which_shards_have_gone_further(cstool: Cstool, tmp_path, steps, said):
    write_shards(tmp_path, steps)
    assert listed(cstool, tmp_path) == f"MemoryX: {said}\n"


def test_a_list_says_which_shards_are_missing(cstool: Cstool, model_dir, shards):
    remove(shards[1])
    expected = "MemoryX: 2 of 3 shards, memoryx_2_of_3.h5 is not there\n"
    assert listed(cstool, model_dir) == expected
    (document,) = cstool("checkpoint", "list", model_dir, "--json").document["shards"]
    assert (document["missing"], document["step"], document["nodes"]) == (["memoryx_2_of_3.h5"], None, 3)
    dealt = {"embedding": [[(0, 7)], *([] for _ in range(4))]}
    write_shards(model_dir, 1, {"embedding": MODEL["embedding"]}, dealt, name="other")
    for node in (1, 2, 3, 5):
        remove(model_dir / f"memoryx_{node}_of_5.h5")
    expected += "MemoryX: 1 of 5 shards, memoryx_1_of_5.h5, memoryx_2_of_5.h5 and 2 more are not there\n"
    assert listed(cstool, model_dir) == expected


def test_a_list_says_that_a_record_is_damaged(cstool: Cstool, model_dir, shards):
    record = record_path(shards[1])
    os.truncate(record, 20)
    message = f"{record}: the commit record is damaged or cut short"
    assert listed(cstool, model_dir) == f"{message}\n"
    document = cstool("checkpoint", "list", model_dir, "--json").document["shards"]
    assert document == [{"nodes": None, "paths": [], "missing": [], "step": None, "ahead": [], "error": message}]


def test_info_and_verify_are_of_all_shards(cstool: Cstool, shards):
    lines = cstool("checkpoint", "info", shards[1], "--verify").stdout.splitlines()
    facts = dict(line.split(None, 1) for line in lines[: lines.index("")])
    assert facts["file"] == str(shards[0])
    assert facts["format"] == "MemoryX 1 in 3 shards, written by cstool 1.0.0"
    assert (facts["step"], facts["checksums"], facts["parameters"]) == ("3", "all right", "122")
    document = cstool("checkpoint", "info", shards[1], "--json").document
    assert document["bytes"] == sum(path.stat().st_size for path in shards)
    assert cstool("checkpoint", "verify", shards[2]) == (0, f"{shards[2]}: ok\n", "")


def test_verify_finds_what_is_wrong_with_another_shard(cstool: Cstool, shards):
    with CommittedStore(shards[1]) as state:
        offset = state._places["model.layer.bias"][state.record.arrays["model.layer.bias"][0].slot].offset
    content = bytearray(shards[1].read_bytes())
    content[offset] ^= 1
    shards[1].write_bytes(content)
    outcome = cstool("checkpoint", "verify", shards[0])
    assert outcome.code == 1
    damage = f"{shards[0]}: {shards[1]}: model.layer.bias is damaged: the checksum of rows 0 to "
    assert outcome.stdout.startswith(damage)
    record_path(shards[2]).write_text("{}")
    expected = f"{shards[0]}: {record_path(shards[2])}: the commit record is damaged or cut short\n"
    assert cstool("checkpoint", "verify", shards[0]) == (1, expected, "")
    remove(shards[2])
    rule = f"{shards[0].parent}: must have all 3 shards of MemoryX, memoryx_3_of_3.h5 is not there"
    assert cstool("checkpoint", "verify", shards[0]) == (2, f"{shards[0]}: {rule}\n", "")


def test_copy_and_diff_take_a_shard_for_all(cstool: Cstool, shards, tmp_path):
    made, older = tmp_path / "checkpoint_3.mdl", tmp_path / "checkpoint_2.mdl"
    document = cstool("checkpoint", "copy", shards[1], f"{tmp_path}/", "--json").document
    size = made.stat().st_size
    assert document == {"source": str(shards[1]), "path": str(made), "bytes": size, "note": None}
    assert made.read_bytes() == checkpoint_of_one_file(tmp_path, 3)
    assert cstool("checkpoint", "copy", "--older", shards[0], f"{tmp_path}/").code == 0
    assert older.read_bytes() == checkpoint_of_one_file(tmp_path, 2)
    outcome = cstool("checkpoint", "diff", str(made), shards[2])
    assert outcome.code == 0
    assert outcome.stdout.startswith(f"left   {made}\nright  {shards[0]}\n")
    assert cstool("checkpoint", "diff", shards[0], older).code == 1


def test_with_a_shard_go_all_that_belong_to_it_and_no_others(cstool: Cstool, model_dir, shards):
    write_shards(model_dir, 1, {"embedding": MODEL["embedding"]}, {"embedding": [[(0, 3)], [(3, 7)]]}, name="other")
    copy_checkpoint(shards[0], model_dir)
    stay = sorted(path.name for path in model_dir.iterdir() if "_of_3" not in path.name)
    before = sorted(path.name for path in model_dir.iterdir())
    sizes = [path.stat().st_size + record_path(path).stat().st_size for path in shards]
    deleted = [{"path": str(path), "bytes": size} for path, size in zip(shards, sizes, strict=True)]
    document = cstool("checkpoint", "delete", shards[1], "--dry_run", "--json").document
    assert document == {"dry_run": True, "deleted": deleted}
    assert sorted(path.name for path in model_dir.iterdir()) == before
    outcome = cstool("checkpoint", "delete", shards[2], shards[0])
    assert (outcome.code, outcome.stderr) == (0, "")
    assert [line.partition(": deleted, ")[0] for line in outcome.stdout.splitlines()] == [*map(str, shards)]
    assert sorted(path.name for path in model_dir.iterdir()) == stay


@pytest.mark.parametrize("lost", ["record", "file", "both are damaged", "all records are damaged"])
def test_delete_removes_what_is_left_of_shards(cstool: Cstool, model_dir, shards, lost):
    match lost:
        case "record":
            record_path(shards[1]).unlink()
        case "file":
            shards[1].unlink()
        case "both are damaged":
            shards[1].write_bytes(b"x")
            record_path(shards[1]).write_bytes(b"x")
        case _:
            for path in shards:
                record_path(path).write_bytes(b"x")
    assert cstool("checkpoint", "delete", shards[1]).code == 0
    assert [*model_dir.iterdir()] == []


def test_a_shard_of_another_run_that_took_the_place_of_one_stays(cstool: Cstool, model_dir, shards, tmp_path):
    write_shards(tmp_path / "other", 1, name="other")
    for file in (shards[1], record_path(shards[1])):
        shutil.copy(tmp_path / "other" / file.name, file)
    assert cstool("checkpoint", "delete", shards[0]).code == 0
    left = [shards[1].name, record_path(shards[1]).name]
    assert sorted(path.name for path in model_dir.iterdir() if path.suffix != ".lock") == left


def test_shards_of_which_a_run_uses_one_all_stay(cstool: Cstool, model_dir, shards):
    lock = StoreLock(lock_path(shards[2]))
    owner = lock_path(shards[2]).read_text().strip()
    before = {path: path.read_bytes() for path in model_dir.iterdir() if path.suffix != ".lock"}
    message = f"{lock_path(shards[2])}: the MemoryX file must be used by one run at a time, it is in use by {owner}"
    hint = "wait for it, stop it, or choose another --model_dir"
    assert cstool("checkpoint", "delete", shards[0]) == (2, "", error(message, hint))
    lock.close()
    assert {path: path.read_bytes() for path in model_dir.iterdir() if path.suffix != ".lock"} == before


def test_a_folder_with_shards_alone_is_answered_from_none(model_dir, shards, cstool: Cstool):
    assert _checkpoint(str(model_dir)) == shards[0]
