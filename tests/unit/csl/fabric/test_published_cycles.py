"""Simulated cycles beside published ones: rows of docs/csl/fabric_cycles.md."""

from pathlib import Path

import pytest

from benchmarks.fabric_cycles import measured, medians, rows, table

PAGE = (Path(__file__).parents[4] / "docs" / "csl" / "fabric_cycles.md").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def quick():
    return [measured(row) for row in rows(quick=True)]


@pytest.mark.takes("33 programs, simulated with and without each constant")
def test_the_rows_are_those_of_the_page(quick):
    assert [line for line in table(quick) if line not in PAGE] == []
    # The one program that takes longer is fitted.
    assert [line for line in medians(quick) if line.startswith("| held out") and line not in PAGE] == []


@pytest.mark.parametrize(("kind", "most"), [("memory", 0.15), ("fabric", 0.15), ("scalar", 0.25)])
def test_held_out_rows_are_as_near_as_the_page_says(quick, kind, most):
    errors = [abs(each.error) for each in quick if each.row.kind == kind and not each.row.fitted]
    assert len(errors) >= 3
    assert max(errors) < most


@pytest.mark.lab
def test_the_large_program_is_that_of_the_page():
    (large,) = (measured(row) for row in rows() if not row.quick)
    assert list(table([large]))[-1] in PAGE
