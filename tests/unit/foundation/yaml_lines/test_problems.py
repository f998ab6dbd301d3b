"""How values and problems are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines.document import Document, Place
from cstool.foundation.yaml_lines.problems import Problems, show
from cstool.model.params.sections.trainer import LoggingParams


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        (1e-5, "1e-05"),
        ("a", "'a'"),
        ("a" * 80, f"'{'a' * 57}...'"),
        (10**100, f"1{'0' * 56}..."),
        ([1, "a", None], "[1, 'a', null]"),
        ([100] * 50, "a list"),
        ([{"a": 1}], "a list"),
        ({"a": 1}, "a mapping"),
    ],
)
def test_a_value_is_shown_as_yaml_writes_it_and_shortened(value, text):
    assert show(value) == text


@pytest.fixture
def problems() -> Problems:
    places = {("a",): Place("x.yaml:1", 1), ("a", "b"): Place("x.yaml:2", 2), ("c",): Place("x.yaml:3", 3)}
    return Problems(Document("x.yaml", "", {}, places), Path())


def test_problems_are_raised_in_the_order_of_the_file(problems):
    problems.add(("c",), "is wrong")
    problems.add(("a", "b"), "is wrong", 5, "make it right")
    with pytest.raises(ParamsError) as caught:
        problems.raise_found()
    assert caught.value.problems == (("x.yaml:2: a.b is wrong, got 5", "make it right"), ("x.yaml:3: c is wrong", None))


def test_without_problems_nothing_is_raised_and_braces_in_a_value_are_no_place_holder(problems):
    problems.note(("c",))
    problems.raise_found()
    assert problems.notes == ("c: accepted, no effect",)
    problems.add(("c",), "must hold {step}", "{x}")
    with pytest.raises(ParamsError) as caught:
        problems.raise_found()
    assert str(caught.value) == "x.yaml:3: c must hold {step}, got '{x}'"


def test_a_section_cannot_be_changed():
    logging = LoggingParams()
    with pytest.raises(ValidationError):
        logging.log_steps = 5  # type: ignore[misc]
