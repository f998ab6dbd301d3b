"""The log of a run, on the screen and in the model directory."""

import io
import logging
import os
import re
import sys
from pathlib import Path

import pytest

from cstool.foundation.errors import CstoolError
from cstool.training.verbs.run_log import LOG, run_log
from tests.contract.refusal import refusal

STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", re.MULTILINE)


@pytest.fixture
def shown() -> logging.StreamHandler[io.StringIO]:
    return logging.StreamHandler(io.StringIO())


@pytest.fixture(autouse=True)
def _command(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cstool", "run", "--params", "my file.yaml"])


def lines_of(text: str) -> list[str]:
    """Return the lines without their times, after a check that each has one."""
    assert len(STAMP.findall(text)) == len(text.splitlines())
    return STAMP.sub("", text).splitlines()


def test_the_log_begins_with_folder_and_command_in_the_vendors_format_and_the_file_is_as_the_screen(tmp_path, shown):
    with run_log(tmp_path, "INFO", shown, {}) as folder:
        LOG.info("| Train Device=CSX, Step=%d", 1)
    assert lines_of(shown.stream.getvalue()) == [
        f"INFO:   Current Working Directory: {Path.cwd()}",
        "INFO:   Running command: cstool run --params 'my file.yaml'",
        "INFO:   | Train Device=CSX, Step=1",
    ]
    assert (folder / "run.log").read_text() == shown.stream.getvalue()
    assert (LOG.handlers, LOG.propagate, LOG.level) == ([], True, logging.NOTSET)


def test_a_run_has_its_own_folder_with_the_params_in_their_order_and_two_links_to_it(tmp_path, shown):
    with run_log(tmp_path, "INFO", shown, {"trainer": {"init": {"seed": 1, "loop": {"max_steps": 2}}}}) as folder:
        pass
    assert re.fullmatch(r"\d{8}_\d{6}", folder.name)
    assert os.readlink(tmp_path / "cerebras_logs" / "latest") == folder.name
    assert os.readlink(tmp_path / "latest_run.log") == f"cerebras_logs/{folder.name}/run.log"
    written = (folder / "trainer_params.yaml").read_text()
    assert written == "trainer:\n  init:\n    seed: 1\n    loop:\n      max_steps: 2\n"


def test_runs_of_the_same_second_do_not_share_a_folder(tmp_path, shown, monkeypatch):
    monkeypatch.setattr("cstool.training.verbs.run_log.time.strftime", lambda _: "20240314_032031")
    names = []
    for _ in range(3):
        with run_log(tmp_path, "INFO", shown, {}) as folder:
            names.append(folder.name)
    assert names == ["20240314_032031", "20240314_032031_1", "20240314_032031_2"]
    assert os.readlink(tmp_path / "cerebras_logs" / "latest") == "20240314_032031_2"


def test_without_a_model_dir_lines_are_shown_alone(tmp_path, shown, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with run_log(None, "INFO", shown, {}) as folder:
        LOG.info("one")
    assert folder is None
    assert lines_of(shown.stream.getvalue())[2:] == ["INFO:   one"]
    assert list(tmp_path.iterdir()) == []


def test_the_level_holds_for_screen_and_file(tmp_path, shown):
    with run_log(tmp_path, "WARNING", shown, {}) as folder:
        LOG.info("quiet")
        LOG.warning("loud")
    assert lines_of(shown.stream.getvalue()) == ["WARNING:   loud"]
    assert lines_of((folder / "run.log").read_text()) == ["WARNING:   loud"]


def test_an_error_of_the_user_is_in_the_file_without_a_traceback_and_a_bug_with_it(tmp_path, shown):
    with pytest.raises(CstoolError), run_log(tmp_path, "ERROR", shown, {}) as folder:
        raise CstoolError("a: must be b, got c", "try b")
    assert STAMP.sub("", (folder / "run.log").read_text()) == "ERROR:   a: must be b, got c\nhint: try b\n"
    assert shown.stream.getvalue() == ""
    with pytest.raises(ZeroDivisionError), run_log(tmp_path, "ERROR", shown, {}) as folder:
        raise ZeroDivisionError("oops")
    lines = STAMP.sub("", (folder / "run.log").read_text()).splitlines()
    assert lines[:2] == ["ERROR:   oops", "Traceback (most recent call last):"]
    assert lines[-1] == "ZeroDivisionError: oops"


class ClosedPipe(io.StringIO):
    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_a_reader_that_went_away_does_not_stop_the_run(tmp_path, capsys):
    with run_log(tmp_path, "INFO", logging.StreamHandler(ClosedPipe()), {}) as folder:
        LOG.info("one")
    assert lines_of((folder / "run.log").read_text())[-1] == "INFO:   one"
    assert capsys.readouterr().err == ""


def test_a_model_dir_that_is_a_file_is_refused(tmp_path, shown):
    path = tmp_path / "taken"
    path.write_text("")
    rule = f"{path}: model_dir must be a folder that can be written, got: Not a directory"
    with refusal(CstoolError, rule, "choose another one with --model_dir"), run_log(path, "INFO", shown, {}):
        pass


@pytest.fixture
def above():
    """What whoever set up `logging` sees."""
    handler = logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(handler)
    yield handler.stream
    logging.getLogger().removeHandler(handler)


def test_a_verb_called_from_python_leaves_its_lines_to_logging(tmp_path, above, monkeypatch):
    monkeypatch.setattr(LOG, "level", logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    LOG.manager._clear_cache()
    with run_log(tmp_path, "INFO", None, {}, "train") as folder:
        LOG.info("a step")
        LOG.warning("odd")
    assert above.getvalue() == "odd\n"
    assert lines_of((folder / "run.log").read_text())[1:] == [
        "INFO:   Called from Python: train",
        "INFO:   a step",
        "WARNING:   odd",
    ]


def test_whoever_asks_logging_for_more_gets_it_and_finds_it_unchanged(tmp_path, above):
    LOG.setLevel("INFO")
    try:
        with run_log(tmp_path, "WARNING", None, {}):
            LOG.info("left out of the file and of the screen alike")
            LOG.warning("odd")
        assert above.getvalue() == "odd\n"
        assert (LOG.level, LOG.propagate, LOG.handlers) == (logging.INFO, True, [])
    finally:
        LOG.setLevel(logging.NOTSET)
