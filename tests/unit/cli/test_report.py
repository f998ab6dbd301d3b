"""Errors become messages."""

import pytest
import typer

from cstool.cli.report import errors_as_messages, print_error
from cstool.errors import CstoolError, DataError, Interrupted, NonFiniteError, ParamsError


def outcome_of(error: CstoolError, capsys: pytest.CaptureFixture[str], debug: bool = False) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as exit_, errors_as_messages(debug):
        raise error
    return exit_.value.exit_code, capsys.readouterr().err


TWO = ParamsError([("x.yaml:3: a: unknown key", "did you mean b?"), ("x.yaml:4: c: missing", None)])
ERRORS = [
    (DataError("a: no such folder", "`make` makes it"), 2, "error: a: no such folder\nhint: `make` makes it\n"),
    (CstoolError("a: must be b, got c"), 2, "error: a: must be b, got c\n"),
    (TWO, 2, "error: x.yaml:3: a: unknown key\nhint: did you mean b?\nerror: x.yaml:4: c: missing\n"),
    (NonFiniteError("step 3: loss is nan"), 1, "error: step 3: loss is nan\n"),
    (
        Interrupted("stopped", "the same command continues"),
        130,
        "interrupted: stopped\nhint: the same command continues\n",
    ),
]


@pytest.mark.parametrize(("error", "code", "text"), ERRORS)
def test_an_error_is_its_messages_each_with_its_hint_and_an_exit_code(capsys, error, code, text):
    assert outcome_of(error, capsys) == (code, text)


def test_debug_adds_the_traceback(capsys):
    shown = outcome_of(CstoolError("a: must be b, got c"), capsys, debug=True)[1]
    assert shown.startswith("Traceback (most recent call last):\n")
    assert shown.endswith("\nerror: a: must be b, got c\n")


def test_a_bug_is_not_turned_into_a_message():
    with pytest.raises(ZeroDivisionError), errors_as_messages(False):
        raise ZeroDivisionError


def test_a_hint_has_no_label_of_its_own(capsys):
    print_error("broken\nhint: mend it", label="note")
    assert capsys.readouterr().err == "note: broken\nhint: mend it\n"
