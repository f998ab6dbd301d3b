"""MemoryX files that cannot be gone on from, the checkpoint commands with them, and the ways on, to the letter.

In the expected messages TMP is the folder of the test.
"""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cstool.training.store import CheckpointReader, FileStore, committed_step
from cstool.training.store.file_layout import lock_path, record_path
from cstool.training.store.store_lock import StoreLock
from tests.end_to_end.memoryx_files import IN_FILE, NEVER_SAVED, flip_a_bit, run_small, small_params
from tests.end_to_end.refusals import error, kept
from tests.end_to_end.runs import latest_bits, saved_tensors
from tests.unit.training.store.stored import edit_record

FILE = "TMP/model_dir/memoryx.h5"
ANOTHER_RUN = "the file is of another model or optimizer: choose another --model_dir"
EMBEDDING = "model.embedding_layer.word_embeddings.weight"
POSITIONS = "embedding_layer.position_embeddings.embed.weight"
QUERIES = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight"
SGD = {"init__optimizer": {"SGD": {"momentum": 0.9, "learning_rate": 0.1}}}
PLAIN_SGD = {"init__optimizer": {"SGD": {"momentum": 0.0, "learning_rate": 0.1}}}
COPY_OLDER = f"checkpoint copy --older {FILE} TMP/model_dir/checkpoint_2.mdl"
DELETE = f"checkpoint delete {FILE}"
GO_ON = "run -p TMP/params.yaml --lanes 1"
OLDER_IS_WHOLE = (
    f"the commit before it, of step 2, is whole: cstool {COPY_OLDER} makes a checkpoint of it, and after cstool "
    f"{DELETE} the same command goes on from there"
)
FRESH = {"init__checkpoint": {"steps": 0, "autoload_last_checkpoint": False}}
SPARSE = {"init__sparsity": {"sparsity": 0.75}}


def train(folder: Path, data: Path, **changes: Any) -> Path:
    """Train three steps, and return the model_dir in which they were committed, and nothing saved."""
    run_small(small_params(folder, data, **{"init__loop": {"max_steps": 3}, **IN_FILE, **NEVER_SAVED, **changes}))
    return folder / "model_dir"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> Path:
    return train(tmp_path_factory.mktemp("trained"), data)


@pytest.fixture
def refused(refused) -> Callable[..., None]:
    """Check that a run with MemoryX in a file refuses with just this message, and leaves everything as it was."""

    def check(message: str, hint: str | None, *typed: object, **changes: Any) -> None:
        refused(message, hint, "--lanes", 1, *typed, write=small_params, **{**IN_FILE, **changes})

    return check


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"init__model__hidden_size": 48}, f"{EMBEDDING} must be 64 x 48 float32, got 64 x 32 float32"),
        ({"init__model__num_hidden_layers": 3},
         "lacks model.transformer_decoder.layers.2.norm1.weight, which this run keeps"),
        ({"init__model__num_hidden_layers": 1},
         "has model.transformer_decoder.layers.1.ffn.ffn.0.linear_layer.bias, which this run does not keep"),
        (SGD, f"lacks optimizer.{EMBEDDING.removeprefix('model.')}.momentum_buffer, which this run keeps"),
        (PLAIN_SGD, f"has optimizer.{POSITIONS}.exp_avg, which this run does not keep"),
        (SPARSE, f"{QUERIES} must be sparse, as in this run, got a dense one"),
    ],
    ids=["wider", "deeper", "less deep", "with momentum", "without state", "sparse"],
)  # fmt: skip
@pytest.mark.usefixtures("model_dir")
def test_a_file_of_another_model_or_optimizer(refused, changes, rule):
    refused(f"{FILE}: {rule}", ANOTHER_RUN, **changes)


def test_a_sparse_file_for_a_dense_run(refused, tmp_path, data):
    train(tmp_path, data, **SPARSE)
    refused(f"{FILE}: model.{QUERIES} must be 32 x 32 float32, got 256 float32", ANOTHER_RUN)


@pytest.mark.usefixtures("model_dir")
def test_a_checkpoint_path_that_names_a_memoryx_file(refused, tmp_path):
    path = tmp_path / "model_dir" / "memoryx.h5"
    hint = f"cstool checkpoint copy {FILE} FILE makes a checkpoint of it; --model_dir TMP/model_dir goes on with it"
    refused(
        f"{FILE}: must be a checkpoint, this is a MemoryX file", hint, "--checkpoint_path", path, "--memoryx", "ram"
    )


@pytest.mark.parametrize("what", ["a checkpoint", "something else", "a link in circles"])
def test_what_is_no_memoryx_file_is_not_replaced(refused, cstool, model_dir, what):
    path = model_dir / "memoryx.h5"
    if what == "a checkpoint":
        assert cstool("checkpoint", "copy", path, model_dir / "x").code == 0
        (model_dir / "x").rename(path)
    elif what == "something else":
        path.write_bytes(b"my thesis")
    else:
        path.unlink()
        path.symlink_to(path.name)
    record_path(path).unlink()
    refused(
        f"{FILE}: must be a MemoryX file, this is something else, and this run would replace it",
        "move it away, or choose another --model_dir",
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataloader": {"batches_streamed": "x"}}, f"{FILE}: dataloader.batches_streamed must be a count, got 'x'"),
        ({"dataloader": {"batches_streamed": 1}}, f"{FILE}: dataloader.batch_size must be a count, got None"),
    ],
)
def test_a_position_that_is_none(refused, model_dir, values, message):
    edit_record(model_dir / "memoryx.h5", lambda record: record["values"].update(values))
    for store in ("file", "ram"):
        refused(message, OLDER_IS_WHOLE, "--memoryx", store)


@pytest.mark.usefixtures("model_dir")
def test_commits_that_no_checkpoint_has_are_not_dropped(refused, cstool, tmp_path, data):
    copy = f"checkpoint copy {FILE} TMP/model_dir/checkpoint_3.mdl"
    message = f"{FILE}: holds step 3, which no checkpoint has, and this run would replace it"
    hint = f"cstool {copy} keeps it as a checkpoint, cstool {DELETE} drops it; or choose another --model_dir"
    refused(message, hint, **FRESH)
    refused(message, hint, "--load_checkpoint_states", "model")
    # Kept as a checkpoint it is not lost, as long as that is whole.
    assert cstool(*copy.replace("TMP", str(tmp_path)).split()).code == 0
    saved = tmp_path / "model_dir" / "checkpoint_3.mdl"
    whole = saved.read_bytes()
    saved.write_bytes(whole[:5000])
    refused(message, hint, **FRESH)
    saved.write_bytes(whole)
    assert cstool("run", "-p", small_params(tmp_path, data, **IN_FILE, **FRESH), "--lanes", 1).code == 0
    assert committed_step(tmp_path / "model_dir" / "memoryx.h5") == 4


def test_two_runs_at_a_time(refused, model_dir):
    """Whether the other has its file or is just making it."""
    path, hint = model_dir / "memoryx.h5", "wait for it, stop it, or choose another --model_dir"
    rule = f"{FILE}.lock: the MemoryX file must be used by one run at a time, it is in use by "
    with closing(StoreLock(lock_path(path))):
        owner = lock_path(path).read_text().strip()
        for command, store in (("train", "file"), ("train", "ram"), ("eval", "file"), ("eval", "ram")):
            refused(rule + owner, hint, "-m", command, "--memoryx", store)
    path.unlink()
    record_path(path).unlink()
    with closing(FileStore(path, 2**20)):
        refused(rule + lock_path(path).read_text().strip(), hint)


SIZE = "must be a size, such as 512MiB or 2GiB, got"
STEPS = "TMP/params.yaml:35: trainer.init.memoryx.commit_steps must be"


@pytest.mark.parametrize(
    ("typed", "steps", "rule"),
    [
        ("2 Gib x", 1, f"--memoryx_memory: {SIZE} '2 Gib x'"),
        ("", 1, f"--memoryx_memory: {SIZE} ''"),
        ("1e3", 1, "--memoryx_memory: must be at least 1MiB, got '1e3'"),
        ("2MiB", -1, f"{STEPS} at least 0, got -1"),
        ("2MiB", 1.5, f"{STEPS} a whole number, got 1.5"),
        ("2MiB", "often", f"{STEPS} a whole number, got 'often'"),
    ],
)
def test_a_size_or_a_number_of_steps_that_is_none(refused, typed, steps, rule):
    asked = {**IN_FILE["init__memoryx"], "commit_steps": steps}
    refused(rule, None, f"--memoryx_memory={typed}", init__memoryx=asked)


@pytest.mark.parametrize(
    ("lanes", "least", "more"), [("1 lane", "8,530,944", ""), ("2 lanes", "8,580,096", "; --lanes 1 needs less")]
)
def test_too_little_memory(refused, cstool, tmp_path, data, lanes, least, more):
    needs = f"must be at least {least} bytes for this model, whose largest panel has 16,384, with {lanes}"
    little = ["--memoryx_memory", "1MiB", "--lanes", lanes[0]]
    refused(f"--memoryx_memory: {needs}; got 1,048,576", f"--memoryx_memory 9MiB does{more}", *little)
    enough = ["--memoryx_memory", "9MiB", "--lanes", lanes[0]]
    assert cstool("run", "-p", small_params(tmp_path, data, **IN_FILE), *enough).code == 0


TIED = {"init__model__share_embedding_weights": True}
RIGL = {"init__sparsity": {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}}}


@pytest.fixture(scope="module")
def straight(undisturbed) -> str:
    return undisturbed(small_params, run_small)


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
    assert saved_tensors(saved) == saved_tensors(made)


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


def test_what_a_run_uses_is_left_alone_and_a_run_waits_for_nobody_who_reads(refused, cstool, model_dir):
    path, before = model_dir / "memoryx.h5", kept(model_dir)
    rule = f"{FILE}.lock: the MemoryX file must be used by one run at a time, it is in use by "
    hint = "wait for it, stop it, or choose another --model_dir"
    with closing(StoreLock(lock_path(path))):
        message = rule + lock_path(path).read_text().strip()
        for command in ("delete", "info"):
            assert cstool("checkpoint", command, path) == (2, "", error(message, hint))
        assert cstool("checkpoint", "verify", path) == (2, f"{FILE}: {message}\n", "")
    with closing(StoreLock(lock_path(path), shared=True)):
        refused(rule + lock_path(path).read_text().strip(), hint)
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


def test_from_a_damaged_commit_the_one_before_it_is_the_way_on(refused, cstool, tmp_path, model_dir, straight):
    refused(flip_a_bit(model_dir / "memoryx.h5"), OLDER_IS_WHOLE)
    for typed in (COPY_OLDER, DELETE, GO_ON):
        assert cstool(*typed.replace("TMP", str(tmp_path)).split()).code == 0
    assert latest_bits(model_dir) == straight


def spoil_record(path: Path) -> str:
    record_path(path).write_bytes(record_path(path).read_bytes()[:-5])
    return f"{FILE}.commit: the commit record is damaged or cut short"


@pytest.mark.parametrize(("spoil", "store"), [(spoil_record, "ram"), (flip_a_bit, "file")])
def test_where_both_commits_are_damaged_the_newest_whole_checkpoint_is_the_way_on(
    refused, cstool, tmp_path, model_dir, straight, spoil, store
):
    path = model_dir / "memoryx.h5"
    assert cstool("checkpoint", "copy", "--older", path, model_dir).code == 0
    if spoil is flip_a_bit:
        flip_a_bit(path, older=True)
    newest = "--checkpoint_path TMP/model_dir/checkpoint_2.mdl"
    hint = f"after cstool {DELETE}, {newest} goes on from the newest that is whole"
    refused(spoil(path), hint, "--memoryx", store)
    for typed in (DELETE, f"{GO_ON} --memoryx {store} {newest}"):
        assert cstool(*typed.replace("TMP", str(tmp_path)).split()).code == 0
    assert latest_bits(model_dir) == straight


def test_where_nothing_is_whole_the_way_on_is_to_start_afresh(refused, cstool, tmp_path, model_dir, straight):
    path = model_dir / "memoryx.h5"
    path.write_bytes(path.read_bytes()[:4000])
    hint = f"nothing here is whole: after cstool {DELETE} the same command starts afresh"
    refused(f"{FILE}: the MemoryX file is damaged or cut short", hint)
    for typed in (DELETE, GO_ON):
        assert cstool(*typed.replace("TMP", str(tmp_path)).split()).code == 0
    assert latest_bits(model_dir) == straight
