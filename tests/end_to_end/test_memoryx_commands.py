"""The checkpoint commands with a MemoryX file, and the ways on from one that is damaged, followed to the letter.

In the expected messages TMP is the folder of the test.
"""

import json
from contextlib import closing
from pathlib import Path

import pytest

from cstool.training.store import CheckpointReader
from cstool.training.store.file_layout import lock_path, record_path
from cstool.training.store.store_lock import StoreLock
from tests.end_to_end.memoryx_files import IN_FILE, NEVER_SAVED, flip_a_bit, run_small, small_params
from tests.end_to_end.refusals import error, kept
from tests.end_to_end.runs import digest, latest_bits

FILE = "TMP/model_dir/memoryx.h5"
TIED = {"init__model__share_embedding_weights": True}
RIGL = {"init__sparsity": {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> Path:
    """A model_dir in which a run of three steps was committed, and nothing saved."""
    folder = tmp_path_factory.mktemp("trained")
    run_small(small_params(folder, data, init__loop={"max_steps": 3}, **IN_FILE, **NEVER_SAVED))
    return folder / "model_dir"


@pytest.fixture(scope="module")
def straight(tmp_path_factory, data) -> str:
    """The digest at the end of a run of four steps in memory."""
    return digest(Path(run_small(small_params(tmp_path_factory.mktemp("straight"), data)).checkpoints[-1]))


def test_a_copy_is_the_checkpoint_that_the_run_would_have_written(cstool, tmp_path, data):
    saved = Path(run_small(small_params(tmp_path, data, **TIED, **RIGL, **IN_FILE)).checkpoints[-1])
    (tmp_path / "out").mkdir()
    outcome = cstool("checkpoint", "copy", tmp_path / "model_dir" / "memoryx.h5", tmp_path / "out", "--json")
    made = tmp_path / "out" / "checkpoint_4.mdl"
    assert json.loads(outcome.stdout) == {
        "source": FILE,
        "path": "TMP/out/checkpoint_4.mdl",
        "bytes": made.stat().st_size,
        "note": None,
    }
    compared = cstool("checkpoint", "diff", saved, made, "--json").document
    assert compared["match"]
    assert not compared["values"]
    with CheckpointReader(saved) as one, CheckpointReader(made) as other:
        assert {*one.keys()} == {*other.keys()}
        assert one.values() == other.values()
        assert [one.link_of(key) for key in one.keys()] == [other.link_of(key) for key in one.keys()]  # noqa: SIM118
        for name in one.tensor_names():
            assert one.read(name).tobytes() == other.read(name).tobytes()


def test_info_and_list_say_what_it_is_and_of_which_step(cstool, model_dir):
    lines = cstool("checkpoint", "info", model_dir / "memoryx.h5", "--verify").stdout.splitlines()
    facts = dict(line.split(None, 1) for line in lines[: lines.index("")])
    assert facts["file"] == FILE
    assert facts["format"].startswith("MemoryX 1, written by cstool ")
    assert (facts["model"], facts["step"], facts["streamed"]) == ("gpt2", "3", "3 batches")
    assert facts["checksums"] == "all right"
    assert cstool("checkpoint", "list", model_dir) == (0, "MemoryX: memoryx.h5, committed at step 3\n", "")
    document = cstool("checkpoint", "list", model_dir, "--json").document
    assert document == {"checkpoints": [], "memoryx": {"step": 3, "path": FILE, "error": None}, "shards": []}


def test_verify_reads_all_of_the_last_commit(cstool, model_dir):
    path = model_dir / "memoryx.h5"
    assert cstool("checkpoint", "verify", path) == (0, f"{FILE}: ok\n", "")
    damage = flip_a_bit(path)
    assert cstool("checkpoint", "verify", path) == (1, f"{damage}\n", "")
    record_path(path).write_text("{}")
    message = f"{FILE}.commit: the commit record is damaged or cut short\n"
    assert cstool("checkpoint", "verify", path) == (1, f"{FILE}: {message}", "")
    assert cstool("checkpoint", "list", model_dir) == (0, message, "")


def test_diff_tells_a_commit_from_the_one_before_it(cstool, model_dir, tmp_path):
    path, older = model_dir / "memoryx.h5", tmp_path / "checkpoint_2.mdl"
    assert cstool("checkpoint", "copy", "--older", path, tmp_path).stdout.startswith(
        f"{FILE}: copied to TMP/checkpoint_2.mdl, "
    )
    outcome = cstool("checkpoint", "diff", older, path)
    assert outcome.code == 1
    assert "global_step                  2     3\n" in outcome.stdout
    assert cstool("checkpoint", "diff", path, path).code == 0


def test_delete_removes_file_record_and_lock(cstool, model_dir):
    path = model_dir / "memoryx.h5"
    before = kept(model_dir)
    outcome = cstool("checkpoint", "delete", path, "--dry_run", "--json")
    size_bytes = path.stat().st_size + record_path(path).stat().st_size
    assert json.loads(outcome.stdout) == {"dry_run": True, "deleted": [{"path": FILE, "bytes": size_bytes}]}
    assert kept(model_dir) == before
    assert cstool("checkpoint", "delete", path).code == 0
    assert not [*model_dir.glob("memoryx*")]


def test_delete_removes_what_is_left_of_a_store(cstool, model_dir):
    """The file without its commit record, the record without its file, or both, which are damaged."""
    path, record = model_dir / "memoryx.h5", record_path(model_dir / "memoryx.h5")
    whole = {each: each.read_bytes() for each in (path, record)}
    for left in ({path: whole[path]}, {record: whole[record]}, {path: b"x", record: b"x"}):
        path.unlink(missing_ok=True)
        record.unlink(missing_ok=True)
        for each, content in left.items():
            each.write_bytes(content)
        assert cstool("checkpoint", "delete", path).code == 0
        assert not [*model_dir.glob("memoryx*")]


def test_what_a_run_uses_is_left_alone_and_a_run_waits_for_nobody_who_reads(cstool, tmp_path, data, model_dir):
    path, before = model_dir / "memoryx.h5", kept(model_dir)
    rule = f"{FILE}.lock: the MemoryX file must be used by one run at a time, it is in use by "
    hint = "wait for it, stop it, or choose another --model_dir"
    with closing(StoreLock(lock_path(path))):
        message = rule + lock_path(path).read_text().strip()
        for command in ("delete", "info"):
            assert cstool("checkpoint", command, path) == (2, "", error(message, hint))
        assert cstool("checkpoint", "verify", path) == (2, f"{FILE}: {message}\n", "")
    with closing(StoreLock(lock_path(path), shared=True)):
        outcome = cstool("run", "-p", small_params(tmp_path, data, **IN_FILE), "--lanes", 1)
        message = rule + lock_path(path).read_text().strip()
        assert (outcome.code, outcome.stderr) == (2, error(message, hint))
    assert kept(model_dir) == before


def test_without_a_commit_there_is_no_older_one(cstool, tmp_path, model_dir):
    path = model_dir / "memoryx.h5"
    record_path(path).unlink()
    message = f"{FILE}: must be a MemoryX file with a commit record for --older, this has none"
    assert cstool("checkpoint", "copy", "--older", path, tmp_path) == (2, "", error(message))
    message = f"{FILE}: must be a checkpoint, this is a MemoryX file"
    hint = "it has not been committed, so nobody can go on from it"
    assert cstool("checkpoint", "copy", path, tmp_path) == (2, "", error(message, hint))


# The ways on from damage. The same command goes on to step 4, with the bits of a run that nothing disturbed.


def test_from_a_damaged_commit_the_one_before_it_is_the_way_on(cstool, tmp_path, data, model_dir, straight):
    command = ["run", "-p", small_params(tmp_path, data, **IN_FILE), "--lanes", 1]
    damage, before = flip_a_bit(model_dir / "memoryx.h5"), kept(model_dir)
    outcome = cstool(*command)
    copy, delete = f"checkpoint copy --older {FILE} TMP/model_dir/checkpoint_2.mdl", f"checkpoint delete {FILE}"
    hint = (
        f"the commit before it, of step 2, is whole: cstool {copy} makes a checkpoint of it, and after cstool {delete} "
        "the same command goes on from there"
    )
    assert (outcome.code, outcome.stderr) == (2, error(damage, hint))
    assert kept(model_dir) == before
    for typed in (copy, delete):
        assert cstool(*typed.replace("TMP", str(tmp_path)).split()).code == 0
    assert cstool(*command).code == 0
    assert latest_bits(model_dir) == straight


def spoil_record(path: Path) -> str:
    record_path(path).write_bytes(record_path(path).read_bytes()[:-5])
    return f"{FILE}.commit: the commit record is damaged or cut short"


@pytest.mark.parametrize(("spoil", "store"), [(spoil_record, "ram"), (flip_a_bit, "file")])
def test_where_both_commits_are_damaged_the_newest_whole_checkpoint_is_the_way_on(
    cstool, tmp_path, data, model_dir, straight, spoil, store
):
    path, command = model_dir / "memoryx.h5", ["run", "-p", small_params(tmp_path, data, **IN_FILE), "--lanes", 1]
    assert cstool("checkpoint", "copy", "--older", path, model_dir).code == 0
    if spoil is flip_a_bit:
        flip_a_bit(path, older=True)
    damage = spoil(path)
    before = kept(model_dir)
    outcome = cstool(*command, "--memoryx", store)
    hint = (
        f"after cstool checkpoint delete {FILE}, --checkpoint_path TMP/model_dir/checkpoint_2.mdl goes on from the "
        "newest that is whole"
    )
    assert (outcome.code, outcome.stderr) == (2, error(damage, hint))
    assert kept(model_dir) == before
    assert cstool("checkpoint", "delete", path).code == 0
    typed = ["--memoryx", store, "--checkpoint_path", model_dir / "checkpoint_2.mdl"]
    assert cstool(*command, *typed).code == 0
    assert latest_bits(model_dir) == straight


def test_where_nothing_is_whole_the_way_on_is_to_start_afresh(cstool, tmp_path, data, model_dir, straight):
    path, command = model_dir / "memoryx.h5", ["run", "-p", small_params(tmp_path, data, **IN_FILE), "--lanes", 1]
    path.write_bytes(path.read_bytes()[:4000])
    hint = f"nothing here is whole: after cstool checkpoint delete {FILE} the same command starts afresh"
    outcome = cstool(*command)
    assert (outcome.code, outcome.stderr) == (2, error(f"{FILE}: the MemoryX file is damaged or cut short", hint))
    assert cstool("checkpoint", "delete", path).code == 0
    assert cstool(*command).code == 0
    assert latest_bits(model_dir) == straight
