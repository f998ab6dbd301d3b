"""What a verb is given: files, loaded params, overrides, words."""

import io
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import cstool
from cstool.foundation.errors import CstoolError
from cstool.foundation.progress import Silent
from cstool.foundation.progress.bars import BarProgress
from cstool.foundation.progress.screen import screen_of
from cstool.model.verbs.asked import check_trace_file, check_traced
from tests.unit.model.params.conftest import LEGACY

GPT = Path(__file__).parents[4] / "params" / "gpt_tiny.yaml"


def refused(call: Any) -> str:
    with pytest.raises(CstoolError) as found:
        call()
    return str(found.value)


def test_overrides_are_values_by_dotted_key_and_not_the_callers_any_more():
    given = {"trainer.init.seed": 7, "trainer.fit.val_dataloader": None}
    params = cstool.load_params(GPT, overrides=given)
    assert (params.seed, params.val_dataloaders) == (7, ())
    same = cstool.load_params(GPT, overrides=["trainer.init.seed=7", "trainer.fit.val_dataloader=null"])
    assert params.resolved() == same.resolved()
    optimizer = {"AdamW": {"betas": [0.9, 0.95], "learning_rate": 0.5}}
    params = cstool.load_params(GPT, overrides={"trainer.init.optimizer": optimizer})
    optimizer["AdamW"]["betas"].append(1)
    assert params.optimizer.dump()["betas"] == [0.9, 0.95]


def test_overrides_of_an_older_file_name_keys_of_either_layout(tmp_path):
    older = tmp_path / "older.yaml"
    older.write_text(yaml.safe_dump(LEGACY))
    params = cstool.load_params(older, overrides={"runconfig.max_steps": 5, "trainer.init.seed": 9})
    assert (params.loop.max_steps, params.seed) == (5, 9)


def test_all_that_is_wrong_with_overrides_is_told_at_once():
    wrong = {"trainer.init.model.hidden_size": 130, "trainer.init.loop.max_stepz": "x"}
    assert refused(lambda: cstool.load_params(GPT, overrides=wrong)) == (
        "trainer.init.model.hidden_size=130: must be a multiple of num_heads (4), got 130\n"
        "hint: 128 and 132 are the nearest\n"
        "trainer.init.loop.max_stepz='x': is not a known key\n"
        "hint: did you mean max_steps?"
    )


def test_loaded_params_are_not_changed():
    params = cstool.load_params(GPT)
    rule = "must go with a file, got params that are loaded\nhint: `load_params` takes overrides"
    assert refused(lambda: cstool.train(params, max_steps=3)) == f"max_steps: {rule}"
    assert refused(lambda: cstool.estimate(params, overrides={"trainer.init.seed": 1})) == f"overrides: {rule}"
    assert cstool.estimate(params, num_csx=2).num_csx == 2


CALLS = {
    "mode: must be one of train, eval, train_and_eval, eval_all, got 'trains'\nhint: did you mean train?": (
        lambda: cstool.RunRequest(mode="trains")
    ),
    "sparse_kernels: must be one of auto, always, never, measure, got 'x'": (
        lambda: cstool.RunRequest(sparse_kernels="x")
    ),
    "executor: must be one of table, python, fabric, got 'x'": lambda: cstool.RunRequest(executor="x"),
    "lanes: must be at least 1, got 0\nhint: None takes as many as there are cores": lambda: cstool.RunRequest(lanes=0),
    "progress: must be one of auto, none, got 'bars'": lambda: screen_of("bars"),
    "max_steps: must be a whole number, got 'x'": lambda: cstool.train(GPT, max_steps="x"),
}


@pytest.mark.parametrize("message", CALLS)
def test_arguments_are_checked_and_named_as_they_are_given(message):
    assert refused(CALLS[message]) == message


def test_params_that_ask_for_no_run_are_refused_where_one_is_asked_for():
    params = cstool.load_params(GPT, overrides={"trainer.init.backend.compile_only": True})
    assert refused(lambda: cstool.train(params)) == (
        f"{GPT}: compile_only must be false for train, got true\nhint: nothing runs with it"
    )


def test_a_checkpoint_is_named_once(tmp_path):
    assert refused(lambda: cstool.open_model(tmp_path, checkpoint_path="a.mdl")) == (
        "checkpoint_path: must go with a params file, got the checkpoint itself as well"
    )
    assert refused(lambda: cstool.open_model(tmp_path)) == (
        f"{tmp_path}: has no checkpoints\nhint: give the model_dir of a run"
    )


def test_only_a_terminal_gets_bars(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with screen_of("auto")() as screen:
        assert isinstance(screen.progress, Silent)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with screen_of("auto")() as screen:
        assert isinstance(screen.progress, BarProgress)
    with screen_of("none")() as screen:
        assert isinstance(screen.progress, Silent)


def test_samples_are_read_by_number(tmp_path):
    (tmp_path / "a.txt").write_text("abcdefghij" * 40)
    cstool.prepare_text(tmp_path / "a.txt", tmp_path / "text", sequence_length=10, val_fraction=0.2)
    count = cstool.data_info(tmp_path / "text").parts["train"].samples
    found = cstool.read_samples(tmp_path / "text", [count - 1, 0, 0])
    assert (found["input_ids"][1] == found["input_ids"][2]).all()
    assert (found["labels"][1:, :-1] == found["input_ids"][1:, 1:]).all()
    for number in (-1, count):
        assert refused(lambda number=number: cstool.read_samples(tmp_path / "text", [0, number])) == (
            f"{tmp_path / 'text'}: sample numbers must be from 0 to {count - 1:,}, got {number}"
        )
    assert refused(lambda: cstool.read_samples(tmp_path / "text", [0], part="test")) == (
        f"{tmp_path / 'text'}: must have a part test, has train, val"
    )


def test_a_trace_is_a_json_file_in_a_folder_that_is_there(tmp_path):
    check_trace_file(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "b.json").mkdir()
    lost = tmp_path / "lost" / "a.json"
    for path, expected in {
        tmp_path / "a.txt": f"--trace: must end in .json, got {tmp_path}/a.txt",
        tmp_path / "b.json": f"--trace: must be a file, got a folder: {tmp_path}/b.json",
        lost: f"--trace: must be in a folder that can be written, got {lost}: No such file or directory\n"
        "hint: create the folder first",
    }.items():
        assert refused(partial(check_trace_file, path)) == expected


def test_a_trace_is_of_the_training_of_one_trainer():
    params = cstool.load_params(GPT)
    check_traced([params], "train_and_eval")
    rule = f"--trace: must be for one trainer, got 2 in {GPT}\nhint: trace them apart"
    assert refused(lambda: check_traced([params, params], "train")) == rule
    for mode in ("eval", "eval_all"):
        rule = f"--trace: must be for training, got --mode {mode}\nhint: train_and_eval trains, too"
        assert refused(partial(check_traced, [params], mode)) == rule
