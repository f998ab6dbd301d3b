"""Errors become messages."""

from __future__ import annotations

import pytest
import typer

from cstool.cli.report import errors_as_messages, print_error
from cstool.errors import CstoolError, DataError, Interrupted, NonFiniteError, ParamsError


def outcome_of(error: CstoolError, capsys: pytest.CaptureFixture[str], debug: bool = False) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as exit_, errors_as_messages(debug):
        raise error
    return exit_.value.exit_code, capsys.readouterr().err


def test_an_error_the_user_can_fix_exits_with_2_and_gives_its_hint(capsys):
    error = DataError("datasets/text: no such folder", "`cstool data prepare text` makes it")
    expected = "error: datasets/text: no such folder\nhint: `cstool data prepare text` makes it\n"
    assert outcome_of(error, capsys) == (2, expected)


def test_an_error_without_a_hint_is_one_line(capsys):
    assert outcome_of(CstoolError("a: must be b, got c"), capsys) == (2, "error: a: must be b, got c\n")


def test_every_problem_of_a_params_file_has_its_own_line(capsys):
    error = ParamsError([("x.yaml:3: a: unknown key", "did you mean b?"), ("x.yaml:4: c: missing", None)])
    expected = "error: x.yaml:3: a: unknown key\nhint: did you mean b?\nerror: x.yaml:4: c: missing\n"
    assert outcome_of(error, capsys) == (2, expected)


def test_a_run_whose_answer_is_no_exits_with_1(capsys):
    assert outcome_of(NonFiniteError("step 3: loss is nan"), capsys) == (1, "error: step 3: loss is nan\n")


def test_an_interrupted_run_exits_with_130_and_is_not_called_an_error(capsys):
    expected = "interrupted: stopped after step 3\nhint: the same command continues\n"
    assert outcome_of(Interrupted("stopped after step 3", "the same command continues"), capsys) == (130, expected)


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
