"""The page about Python: its examples run as written, one after the other, and print what it says."""

import contextlib
import copy
import io
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

import cstool
from tests.end_to_end.runs import digest, gpt_params

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.lab
def test_the_examples_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    shutil.copy(PROJECT / "LICENSE", "LICENSE")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == PAGE.count("```python") == PAGE.count("```text")
    names: dict[str, Any] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/python.md", "exec"), names)  # noqa: S102
        assert printed.getvalue() == shown


class Signals(cstool.Silent):
    """Stands for Ctrl-C while a step is computed."""

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:
        if loss is not None and done == 2:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.takes("three runs")
def test_ctrl_c_saves_and_the_same_call_goes_on_with_the_same_bits(tmp_path, data):
    file = gpt_params(tmp_path, data)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(cstool.Interrupted) as stopped:
        cstool.train(file, progress=Signals())
    assert stopped.value.message == f"stopped by SIGINT after step 2; it is saved in {tmp_path / 'model_dir'}"
    assert stopped.value.hint == "the same command continues from there"
    assert signal.getsignal(signal.SIGINT) is handler
    rest = cstool.train(file)
    whole = cstool.train(file, model_dir=tmp_path / "whole", num_csx=2)
    assert rest.losses == whole.losses[2:]
    assert digest(Path(rest.checkpoints[-1])) == digest(Path(whole.checkpoints[-1]))


def test_trainers_of_one_file_go_on_from_each_other(tmp_path, data):
    file = gpt_params(tmp_path, data)
    first = yaml.safe_load(file.read_text())["trainer"]
    later = copy.deepcopy(first)
    later["init"]["loop"]["max_steps"] = 6
    file.write_text(yaml.safe_dump({"trainer": [{"trainer": first}, {"trainer": later}]}))
    found = cstool.run_trainers(cstool.load_all_params(file), progress="none")
    assert [getattr(result, "last_step", None) for result in found] == [4, 6]
    checked = cstool.load_all_params(file, overrides={"trainer.init.backend.validate_only": True})
    assert cstool.run_trainers(checked) == [cstool.NotRun("validate_only", "gpt2", None)] * 2


def test_every_verb_is_on_the_page():
    verbs = [name for name in cstool.__all__ if name.islower() and name != "load_system"]
    assert [verb for verb in verbs if f"`{verb}`" not in PAGE] == []
