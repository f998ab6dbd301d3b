"""Results as people and scripts read them."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.terminal.render import print_facts, print_json, print_table, table_lines


def test_json_is_one_document_in_which_numbers_that_json_does_not_have_are_null(capsys):
    metrics = [{"perplexity": float("inf")}, (1.0, -float("inf"))]
    print_json({"loss": float("nan"), "steps": [1, 2], "best": 2.5, "metrics": metrics})
    document = {"loss": None, "steps": [1, 2], "best": 2.5, "metrics": [{"perplexity": None}, [1.0, None]]}
    assert json.loads(capsys.readouterr().out) == document


def test_a_table_off_a_terminal_is_plain_columns_with_rows_or_without(capsys):
    print_table(("step", "file"), [("5", "checkpoint_5.mdl"), ("100", "checkpoint_100.mdl")], right=("step",))
    assert capsys.readouterr().out == "step  file\n   5  checkpoint_5.mdl\n 100  checkpoint_100.mdl\n"
    print_table(("step", "file"), [])
    assert capsys.readouterr().out == "step  file\n"


@pytest.fixture
def terminal(monkeypatch):
    """Make stdout a terminal of some width."""

    def of(columns):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(columns))

    return of


ROWS = [("decoder.layers.0.self_attn.weight", "(256 x 128)", "32,768"), ("embedding", "(64 x 128), (64)", "8,256")]
TABLE = """\
name                               weights           parameters
decoder.layers.0.self_attn.weight  (256 x 128)           32,768
embedding                          (64 x 128), (64)       8,256
"""
CUT = """\
name              weights           parameters
decoder.layers.   (256 x 128)           32,768
0.self_attn.
weight
embedding         (64 x 128), (64)       8,256
"""
TURNED = """\
name        decoder.layers.0.self_attn.weight
weights     (256 x 128)
parameters  32,768

name        embedding
weights     (64 x 128), (64)
parameters  8,256
"""


@pytest.mark.parametrize(("columns", "text"), [(200, TABLE), (63, TABLE), (46, CUT), (40, TURNED), (10, TURNED)])
def test_a_table_fits_the_terminal(capsys, terminal, columns, text):
    terminal(columns)
    print_table(("name", "weights", "parameters"), ROWS, right=("parameters",))
    assert capsys.readouterr().out == text


@given(
    st.lists(st.tuples(*[st.from_regex(r"[ab./]([ab ._/]{0,25}[ab./])?", fullmatch=True)] * 3), max_size=4),
    st.integers(1, 120),
)
def test_a_table_of_any_width_has_every_character_once(rows, width):
    whole = table_lines(("x", "y", "z"), rows, ("y",))
    fitted = table_lines(("x", "y", "z"), rows, ("y",), width)
    if fitted and fitted[0].split() == ["x", "y", "z"]:
        assert sorted("".join(fitted).replace(" ", "")) == sorted("".join(whole).replace(" ", ""))
        assert max(map(len, fitted)) <= width
    else:
        assert all(cell in "\n".join(fitted) for row in rows for cell in row)


def test_rows_stand_side_by_side_where_titles_take_more_room_than_numbers(capsys, terminal):
    terminal(30)
    print_table(("samples/s", "tokens/s", "of the peak"), [(str(n), str(2 * n), "") for n in (10, 20, 40, 80, 160)])
    assert capsys.readouterr().out == (
        "samples/s    10  20  40  80\ntokens/s     20  40  80  160\n\nsamples/s    160\ntokens/s     320\n"
    )


def test_facts_stand_below_each_other_and_are_cut_between_words_on_a_terminal(capsys, terminal):
    print_facts({"step": "5", "tensors": "12"})
    assert capsys.readouterr().out == "step     5\ntensors  12\n"
    terminal(30)
    print_facts({"mode": "weight_streaming: 8 micro-batches of 64 samples", "step": "5 s"})
    text = "mode  weight_streaming: 8\n      micro-batches of 64\n      samples\nstep  5 s\n"
    assert capsys.readouterr().out == text
