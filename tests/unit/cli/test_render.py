"""Results as people and scripts read them."""

from __future__ import annotations

import json
import re
import sys

import pytest

from cstool.cli.render import bytes_text, print_facts, print_json, print_table


def test_json_is_one_document(capsys):
    print_json({"loss": 2.5, "steps": [1, 2]})
    assert json.loads(capsys.readouterr().out) == {"loss": 2.5, "steps": [1, 2]}


def test_numbers_that_json_does_not_have_become_null(capsys):
    print_json({"loss": float("nan"), "metrics": [{"perplexity": float("inf")}, (1.0, -float("inf"))]})
    document = {"loss": None, "metrics": [{"perplexity": None}, [1.0, None]]}
    assert json.loads(capsys.readouterr().out) == document


def test_a_table_off_a_terminal_is_plain_columns(capsys):
    print_table(("step", "file"), [("5", "checkpoint_5.mdl"), ("100", "checkpoint_100.mdl")], right=("step",))
    assert capsys.readouterr().out == "step  file\n   5  checkpoint_5.mdl\n 100  checkpoint_100.mdl\n"


def test_a_table_without_rows_still_has_its_titles(capsys):
    print_table(("step", "file"), [])
    assert capsys.readouterr().out == "step  file\n"


def test_a_table_on_a_terminal_has_the_same_words(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    print_table(("step", "file"), [("5", "[bold]5.mdl")], right=("step",))
    words = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).split()
    assert words == ["step", "file", "5", "[bold]5.mdl"]


def test_a_table_on_a_terminal_has_no_colours_where_none_are_wanted(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("step",), [("5",)])
    assert set(re.findall(r"\x1b\[([0-9;]*)m", capsys.readouterr().out)) <= {"", "0", "1"}


def test_facts_stand_below_each_other(capsys):
    print_facts({"step": "5", "tensors": "12"})
    assert capsys.readouterr().out == "step     5\ntensors  12\n"


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (2**40, "1.0 TiB"),
        (2**60, "1.0 EiB"),
    ],
)
def test_bytes_are_shown_in_the_unit_that_suits_them(count_bytes, text):
    assert bytes_text(count_bytes) == text
