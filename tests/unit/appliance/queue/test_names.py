"""Names of jobs, labels and notes: those that are fine, and what is said of others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.appliance.queue import names
from cstool.appliance.queue.names import check_beginning, check_label_changes, check_labels, check_name, check_note
from cstool.foundation.errors import CstoolError
from tests.examples import examples
from tests.unit.appliance.queue.queues import refusal

NAME = "wsjob-" + "a1b2c3d4e5f6g7h8i9j0k1"
HINT = "hint: cstool job list -a shows all names; the first letters of one suffice"


def test_new_names_are_names_and_differ():
    made = {names.new_name() for _ in range(200)}
    assert len(made) == 200
    assert all(re.fullmatch("wsjob-[a-z0-9]{22}", name) and check_name(name) == name for name in made)
    assert len({letter for name in made for letter in name[6:]}) == 36


@pytest.mark.parametrize(
    "text",
    ["../x", "", "/etc/passwd", f"{NAME}/..", f"{NAME}\n", f"{NAME}\0", NAME[:-1], f"{NAME}a", NAME.upper()]
    + [NAME.replace("a", "ä"), NAME.replace("1", "١"), "x" * 10_000],
)
def test_what_is_no_name_is_refused(text):
    shown = f"'{'x' * 60}…'" if len(text) > 100 else repr(text)
    message = f"job {shown}: a job is called wsjob- and 22 small letters or digits\n{HINT}"
    assert refusal(check_name, text) == message
    assert not names.is_name(text)
    if text != NAME[:-1]:
        assert refusal(check_beginning, text) == message


@examples(200)
@given(st.text(alphabet="wsjob-a1/.\n\0ä", max_size=30))
def test_a_name_or_a_beginning_of_one_leads_to_no_other_folder(text):
    for check in (check_name, check_beginning):
        try:
            check(text)
        except CstoolError:
            continue
        assert re.fullmatch("[a-z0-9-]{1,28}", text)


def test_any_beginning_is_one():
    beginnings = [NAME[:length] for length in range(1, len(NAME) + 1)]
    assert [check_beginning(beginning) for beginning in beginnings] == beginnings


def test_labels_are_pairs():
    pairs = {"a": "b", "x.y_z-1": "", "path": "/a=b c", "k": "1"}
    assert check_labels(["a=b", "x.y_z-1=", "path=/a=b c", "k=1"]) == pairs
    assert check_labels([]) == {}
    assert check_label_changes(["a=b", "c-", "d-=e", "f--"]) == {"a": "b", "c": None, "d-": "e", "f-": None}


BAD_KEY = "its name must be 1 to 63 letters, digits, '.', '_' or '-', got"
NO_LINE = "label a: its value must be one line of characters that can be seen, got"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["a"], "label 'a': must be KEY=VALUE, or KEY- to remove one"),
        (["a-"], "label 'a-': must be KEY=VALUE"),
        (["=b"], f"label '': {BAD_KEY} 0 characters"),
        (["a b=c"], f"label 'a b': {BAD_KEY} 3 characters"),
        (["ä=c"], f"label 'ä': {BAD_KEY} 1 character"),
        (["a\n=c"], rf"label 'a\n': {BAD_KEY} 2 characters"),
        (["k" * 10_000 + "=c"], f"label '{'k' * 60}…': {BAD_KEY} 10,000 characters"),
        (["a=b\nc"], rf"{NO_LINE} 'b\nc'"),
        (["a=\x1b[2J"], rf"{NO_LINE} '\x1b[2J'"),
        (["a=\udcff"], rf"{NO_LINE} '\udcff'"),
        (["a=" + "v" * 10_000], "label a: its value must have at most 63 characters, it has 10,000"),
        (["a=1", "a=2"], "label a: must be there once, it is there twice"),
        ([f"k{number}=" for number in range(65)], "labels: a job may have 64, got 65"),
        (["line\n" * 2000], "label '" + r"line\n" * 12 + "…': must be KEY=VALUE, or KEY- to remove one"),
    ],
)
def test_what_are_no_labels_is_refused(pairs, message):
    assert refusal(check_labels, pairs) == message


def test_the_longest_labels_are_fine():
    labels = {f"{'k' * 61}{number:02d}": "v" * 63 for number in range(64)}
    assert names.check_label_map(labels) == labels
    assert check_labels(f"{key}={value}" for key, value in labels.items()) == labels


def test_a_label_is_changed_once():
    assert refusal(check_label_changes, ["a=1", "a-"]) == "label a: must be there once, it is there twice"


def test_a_note_is_a_line():
    assert check_note("first try, with ü") == "first try, with ü"
    assert check_note("n" * 500) == "n" * 500
    assert refusal(check_note, "n" * 10_240) == "note: must have at most 500 characters, it has 10,240"
    expected = r"note: must be one line of characters that can be seen, got 'a\nerror: b'"
    assert refusal(check_note, "a\nerror: b") == expected
