"""docs/estimate_hosts.md shows what the commands print."""

import shutil

import pytest

from tests.end_to_end.pages import PROJECT, blocks, check_console


@pytest.fixture(autouse=True)
def _in_a_folder_with_params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


def test_hosts_and_stragglers(cstool):
    for console in blocks("estimate_hosts", "console", "console", "console"):
        assert len(check_console(cstool, console)) == 1
