"""docs/estimate_infer.md shows what the command prints."""

import re
import shutil

import pytest

from cstool.cli.estimate_infer import INFER_FLAGS
from tests.end_to_end.pages import PROJECT, blocks, check_console, page


@pytest.fixture(autouse=True)
def _in_a_folder_with_params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


def test_the_page_shows_what_is_printed(cstool):
    (console,) = blocks("estimate_infer", "console")
    assert len(check_console(cstool, console)) == 1


def test_the_page_names_every_flag():
    assert set(INFER_FLAGS) <= set(re.findall(r"--\w+", page("estimate_infer")))
