"""A model_dir as it may be found: files that were renamed, what a killed run left, another run at work."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from cstool.model.params import load_params
from cstool.training.machine.start import choose_start
from cstool.training.store import StoreLock, read_index
from tests.end_to_end.memoryx_files import IN_FILE, small_params
from tests.end_to_end.refusals import kept

SAVED = {"init__checkpoint": {"steps": 2}, "init__model__num_hidden_layers": 1}


@pytest.fixture
def file(tmp_path, data, cstool) -> Path:
    """Params of a run that came to step 3, in a MemoryX file; there are checkpoints of steps 2 and 3."""
    file = small_params(tmp_path, data, init__loop={"max_steps": 3}, **SAVED, **IN_FILE)
    assert cstool("run", "-p", file, "--lanes", 1).code == 0
    return file


@pytest.fixture
def model_dir(tmp_path) -> Path:
    return tmp_path / "model_dir"


def test_a_checkpoint_counts_by_what_it_holds(file, model_dir, caplog):
    (model_dir / "checkpoint_2.mdl").rename(model_dir / "checkpoint_9.mdl")
    params = load_params(file)
    start = choose_start(params, None, None, trains=True)
    assert (start.checkpoint, start.path) == (None, model_dir / "memoryx.h5")
    assert (
        f"{model_dir}/checkpoint_9.mdl is named for step 9 and holds step 2: what it holds counts." in caplog.messages
    )
    for name in ("memoryx.h5", "memoryx.h5.commit"):
        (model_dir / name).unlink()
    assert choose_start(params, None, None, trains=True).checkpoint == model_dir / "checkpoint_3.mdl"


def test_a_commit_is_not_dropped_for_a_checkpoint_that_only_says_that_it_is_newer(file, model_dir, cstool):
    (model_dir / "checkpoint_3.mdl").unlink()
    (model_dir / "checkpoint_2.mdl").rename(model_dir / "checkpoint_9.mdl")
    before = kept(model_dir)
    outcome = cstool("run", "-p", file, "--set", "trainer.init.checkpoint.autoload_last_checkpoint=false")
    path = "TMP/model_dir/memoryx.h5"
    assert outcome.code == 2
    assert outcome.stderr.splitlines()[0] == (
        f"error: {path}: holds step 3, which no checkpoint has, and this run would replace it"
    )
    assert kept(model_dir) == before


def test_what_a_killed_run_left_undone_is_done_at_the_next_start(file, model_dir, cstool):
    index = model_dir / "checkpoints_index.yaml"
    index.write_text(index.read_text().partition("- step: 3")[0])
    names = "checkpoint_4.mdl checkpoints_index.yaml memoryx.h5 memoryx_2_of_3.h5 memoryx_2_of_3.h5.commit"
    left = [model_dir / f"{name}.0123abcd.tmp" for name in names.split()]
    for path in left:
        path.write_text("half")
    (model_dir / "run.lock").write_text("process 1 on another since 2026-01-01 00:00:00\n")
    assert cstool("run", "-p", file, "--lanes", 1, "--max_steps", 4).code == 0
    assert [entry.step for entry in read_index(model_dir)] == [2, 3, 4]
    assert not [path.name for path in (*left, model_dir / "run.lock") if path.exists()]


def test_a_schedule_that_was_changed_meanwhile_is_told(file, cstool):
    """The same one is not; the log has the rate from which the run goes on."""
    told = "Not as it was up to step {}: trainer.init.optimizer and trainer.init.schedulers. From here on it is as the "
    told += "params say now, with a learning rate of {} in the next step."
    same = cstool("run", "-p", file, "--lanes", 1, "--max_steps", 4).stdout
    linear = "[{LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0, total_iters: 10}}]"
    changed = [f"trainer.init.schedulers={linear}", "trainer.init.optimizer.AdamW.weight_decay=0.2"]
    found = cstool("run", "-p", file, "--lanes", 1, "--max_steps", 5, "--set", *changed)
    assert "Not as it was" not in same
    assert told.format(4, "0.4") in found.stdout, (found.stdout, found.stderr)


def test_a_second_run_that_trains_ends_before_it_begins(tmp_path, data, model_dir, cstool):
    file = small_params(tmp_path, data, init__loop={"max_steps": 3}, **SAVED)
    model_dir.mkdir()
    with closing(StoreLock(model_dir / "run.lock")):
        outcome = cstool("run", "-p", file, "--lanes", 1)
        assert cstool("run", "-p", file, "--memoryx", "file") == outcome
        assert [path.name for path in model_dir.iterdir()] == ["run.lock"]
        # Who only reads needs no lock: there is nothing to evaluate yet.
        evaluation = cstool("run", "-p", file, "--lanes", 1, "--mode", "eval")
    rule = "error: TMP/model_dir/run.lock: model_dir must be used by one run that trains at a time, it is in use by "
    message, hint = outcome.stderr.splitlines()
    assert (outcome.code, outcome.stdout) == (2, "")
    assert re.fullmatch(re.escape(rule) + r"process \d+ on \S+ since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", message)
    assert hint == "hint: wait for it, stop it, or choose another --model_dir"
    assert evaluation.stderr.splitlines()[0] == "error: TMP/model_dir: has no checkpoint to evaluate"


def test_a_folder_without_locks_is_trained_in_all_the_same(tmp_path, data, model_dir, cstool, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    file = small_params(tmp_path, data, init__loop={"max_steps": 1}, **SAVED)
    with monkeypatch.context() as patch:
        patch.setattr("cstool.training.store.store_lock.lock_file", refuse)
        outcome = cstool("run", "-p", file, "--lanes", 1)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert (model_dir / "checkpoint_1.mdl").is_file()
