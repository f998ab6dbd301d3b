"""The page about pages of runs, typed as it is written."""

import re
import shutil

import pytest

from tests.end_to_end.pages import PROJECT, consoles, page, typed

PAGE = page("page")


@pytest.mark.takes("a script, which is a process and starts others")
def test_its_commands_print_what_it_shows(tmp_path):
    left_behind = shutil.ignore_patterns("out", "sim.log", "sim_stats.json", "__pycache__")
    shutil.copytree(PROJECT / "examples" / "csl", tmp_path / "examples" / "csl", ignore=left_behind)
    (console,) = consoles("page")
    shown = []
    for command in re.findall(r"^\$ (.*)$", console, re.MULTILINE):
        done = typed(command, tmp_path)
        assert (done.code, done.stderr) == (0, "")
        shown.append(f"$ {command}\n{done.stdout}")
    # The size depends on the version of zlib, and on the script of the page.
    without_size = [re.sub(r"[\d,]+ bytes", "N bytes", text) for text in ("".join(shown), console)]
    assert without_size[0] == without_size[1]
    size = int(re.search(r"([\d,]+) bytes", "".join(shown))[1].replace(",", ""))
    told = int(re.search(r"([\d,]+) bytes", console)[1].replace(",", ""))
    assert abs(size - told) < 0.2 * told


def test_its_keys_are_those_of_the_script():
    script = (PROJECT / "cstool/csl/page/static/page.js").read_text()
    keys = {"space": '" "', "left": '"ArrowLeft"', "Home": '"Home"', "End": '"End"', "+": '"+"', "-": '"-"', "0": '"0"'}
    table = PAGE.partition("## Keys\n")[2]
    for key, name in keys.items():
        assert re.search(rf"^\|.*(?<!\w){re.escape(key)}(?!\w).*\|.*\|$", table, re.MULTILINE), key
        assert f"event.key === {name}" in script
