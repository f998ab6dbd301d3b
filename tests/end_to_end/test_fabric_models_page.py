"""The page about models on the fabric: commands typed, and tables as the benchmark prints them."""

import re

import pytest

from benchmarks.fabric_gpt import lines
from benchmarks.fabric_models import TABLES
from tests.end_to_end.pages import consoles, page, typed

LONG = {"gpt": pytest.mark.lab}


@pytest.mark.takes("a model is compiled into CSL, and two steps are simulated")
def test_its_commands_print_what_it_shows(tmp_path):
    console = "".join(consoles("fabric_models"))
    for command, shown in re.findall(r"^\$ (.*)\n((?:[^$].*\n|\n)*)", console, re.MULTILINE):
        assert typed(f"exec 2>&1; {command}", tmp_path).stdout == shown, command


@pytest.mark.takes("steps of a network are simulated")
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in TABLES])
def test_its_tables_are_those_of_the_benchmark(name):
    shown = re.search(rf"<!-- {name} -->\n\n(.*?)\n\n<!-- end -->", page("fabric_models"), re.DOTALL)
    assert shown is not None
    assert shown[1].splitlines() == TABLES[name]()


@pytest.mark.takes("a step of a block is simulated")
def test_the_table_of_a_gpt_has_the_rows_of_the_small_block():
    shown = page("fabric_models").splitlines()
    assert [line for line in lines("small") if line not in shown] == []
