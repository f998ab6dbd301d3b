"""The page about the debugger, typed as it is written, its table that of the code."""

import pytest

from cstool.csl.debugger import going, looks
from cstool.csl.debugger.prompt import commands_markdown
from tests.end_to_end.pages import page
from tests.end_to_end.tutorials import type_all

PAGE = page("debugger")


@pytest.mark.takes("five runs of scripts, each of which is four processes")
def test_the_tutorial_goes_as_it_is_written(tmp_path):
    type_all(PAGE.partition("## Tutorial\n")[2].partition("\n## ")[0], tmp_path, 14, 5)


def test_the_table_is_that_of_the_commands():
    assert all((going, looks))  # their import fills it
    assert PAGE.partition("begins so.\n\n")[2].partition("\n\n## ")[0] == commands_markdown()
