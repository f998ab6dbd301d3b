"""MemoryX files that cannot be gone on from, and params about them that make no sense: all stays as it was.

In the expected messages TMP is the folder of the test.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cstool.training.store import FileStore, committed_step
from cstool.training.store.file_layout import lock_path, record_path
from cstool.training.store.store_lock import StoreLock
from tests.end_to_end.memoryx_files import IN_FILE, NEVER_SAVED, run_small, small_params
from tests.end_to_end.refusals import error, kept
from tests.unit.training.store.stored import edit_record

FILE = "TMP/model_dir/memoryx.h5"
ANOTHER_RUN = "the file is of another model or optimizer: choose another --model_dir"
EMBEDDING = "model.embedding_layer.word_embeddings.weight"
POSITIONS = "embedding_layer.position_embeddings.embed.weight"
QUERIES = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight"
SGD = {"init__optimizer": {"SGD": {"momentum": 0.9, "learning_rate": 0.1}}}
PLAIN_SGD = {"init__optimizer": {"SGD": {"momentum": 0.0, "learning_rate": 0.1}}}
FRESH = {"init__checkpoint": {"steps": 0, "autoload_last_checkpoint": False}}
SPARSE = {"init__sparsity": {"sparsity": 0.75}}


def train(folder: Path, data: Path, **changes: Any) -> Path:
    """Train two steps, and return the model_dir in which they were committed."""
    run_small(small_params(folder, data, **{"init__loop": {"max_steps": 2}, **IN_FILE, **NEVER_SAVED, **changes}))
    return folder / "model_dir"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> Path:
    return train(tmp_path_factory.mktemp("trained"), data)


@pytest.fixture
def refused(cstool, tmp_path, data) -> Callable[..., None]:
    """Check that a run refuses with just this message, and leaves everything in model_dir as it was."""

    def check(message: str, hint: str | None, *typed: object, **changes: Any) -> None:
        file = small_params(tmp_path, data, **{**IN_FILE, **changes})
        before = kept(tmp_path / "model_dir")
        outcome = cstool("run", "-p", file, "--lanes", 1, *typed)
        assert (outcome.code, outcome.stderr) == (2, error(message, hint))
        assert kept(tmp_path / "model_dir") == before

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
    older = f"cstool checkpoint copy --older {FILE} TMP/model_dir/checkpoint_1.mdl makes a checkpoint of it"
    way_on = f"and after cstool checkpoint delete {FILE} the same command goes on from there"
    refused(message, f"the commit before it, of step 1, is whole: {older}, {way_on}")
    refused(message, f"the commit before it, of step 1, is whole: {older}, {way_on}", "--memoryx", "ram")


@pytest.mark.usefixtures("model_dir")
def test_commits_that_no_checkpoint_has_are_not_dropped(refused, cstool, tmp_path, data):
    copy = f"checkpoint copy {FILE} TMP/model_dir/checkpoint_2.mdl"
    message = f"{FILE}: holds step 2, which no checkpoint has, and this run would replace it"
    delete = f"checkpoint delete {FILE}"
    hint = f"cstool {copy} keeps it as a checkpoint, cstool {delete} drops it; or choose another --model_dir"
    refused(message, hint, **FRESH)
    refused(message, hint, "--load_checkpoint_states", "model")
    # Kept as a checkpoint it is not lost, as long as that is whole.
    assert cstool(*copy.replace("TMP", str(tmp_path)).split()).code == 0
    saved = tmp_path / "model_dir" / "checkpoint_2.mdl"
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
