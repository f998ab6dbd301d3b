"""docs/estimate_cost.md shows what the commands print."""

import re
import shlex
import shutil

import pytest

from cstool.cli.estimate_cost import CostFlags
from cstool.cli.estimate_variants import VariantFlags
from tests.end_to_end.pages import PROJECT, blocks, check_console, page, plain_lines


@pytest.fixture(autouse=True)
def _in_a_folder_with_params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


def test_costs_and_variants(cstool):
    table, job, adapters, frozen, again = blocks("estimate_cost", "console", "text", "console", "console", "console")
    (command,) = check_console(cstool, table)
    found = cstool(*shlex.split(command)).stdout
    section = found[found.index("what a job costs, modelled") :]
    assert plain_lines(section)[: len(job.splitlines())] == plain_lines(job)
    for console in (adapters, frozen, again):
        assert len(check_console(cstool, console)) == 1


def test_the_page_names_every_flag():
    flags = {f"--{name}" for flags in (CostFlags, VariantFlags) for name in flags.__dataclass_fields__}
    assert flags <= set(re.findall(r"--\w+", page("estimate_cost")))
