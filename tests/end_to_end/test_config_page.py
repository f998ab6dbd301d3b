"""The page about params files shows what the commands print; the index names every page."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.worked import PROJECT, write_params

DOCS = PROJECT / "docs"
PAGE = (DOCS / "config.md").read_text(encoding="utf-8")


def test_the_commands_print_what_the_page_shows(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path)
    shutil.copy(PROJECT / "tests" / "interop" / "gpt2_small_legacy.yaml", "params_gpt2.yaml")
    consoles = re.findall(r"```console\n\$ cstool ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert [command.split()[1] for command, _ in consoles] == [
        *("pull", "validate", "show", "stats", "convert_legacy", "keys")
    ]
    for command, printed in consoles:
        outcome = cstool(*shlex.split(command))
        assert (outcome.code, outcome.stderr) == (0, "")
        begin, dots, _ = printed.partition("...\n")
        assert outcome.stdout.startswith(begin) if dots or not printed else outcome.stdout == printed


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_a_byte_order_mark_change_no_line(cstool, tmp_path, monkeypatch, end, mark):
    monkeypatch.chdir(tmp_path)
    content = (PROJECT / "params" / "gpt_tiny.yaml").read_bytes()
    Path("x.yaml").write_bytes(mark + content.replace(b"\n", end))
    assert cstool("config", "validate", "x.yaml").code == 0
    Path("x.yaml").write_bytes(mark + content.replace(b"hidden_size: 128", b"hidden_size: 130").replace(b"\n", end))
    line = content[: content.index(b"hidden_size")].count(b"\n") + 1
    message = f"error: x.yaml:{line}: trainer.init.model.hidden_size must be a multiple of num_heads (4), got 130\n"
    assert cstool("config", "validate", "x.yaml") == (2, "", f"{message}hint: 128 and 132 are the nearest\n")


def test_a_system_file_may_have_the_line_ends_of_windows(cstool, tmp_path):
    content = (PROJECT / "cstool" / "system" / "systems" / "cs2.yaml").read_bytes()
    file = tmp_path / "cs2.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    assert cstool("system", "show", str(file)) == cstool("system", "show", "cs2")


def test_the_index_names_every_page_once():
    named = re.findall(r"\]\((\w+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8").partition("# Pages")[2])
    assert set(named) == {page.name for page in DOCS.glob("*.md")} - {"README.md"}
