"""Simulated cycles of CSL programs beside closed forms of `cstool.plan.timing`: rows of docs/csl/fabric_cycles.md."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.closed_forms import LENGTHS, PROGRAMS, TOKENS, VARIANTS, Row, apart, rows, table, terms

PAGE = Path(__file__).parents[4] / "docs" / "csl" / "fabric_cycles.md"


@pytest.fixture(scope="module")
def small() -> list[Row]:
    """What is simulated for the small grids of the page, without the longest of each line."""
    return list(rows(8, LENGTHS[:2], TOKENS[:2]))


@pytest.mark.takes("24 programs, simulated")
def test_small_rows_are_those_of_the_page_and_every_difference_is_explained(small):
    assert len(small) == 24
    assert [row for row in small if row.unexplained] == []
    page = PAGE.read_text().splitlines()
    assert [line for line in terms(small) if line not in page] == []
    assert [line for line in table(small) if not any(each.startswith(line) for each in page)] == []


@pytest.mark.lab
def test_the_longest_of_each_line_too():
    found = list(rows(8, LENGTHS[2:], TOKENS[2:]))
    assert [row for row in found if row.unexplained] == []
    page = PAGE.read_text().splitlines()
    ends = [line.rsplit(" | ", 1) for line in table(found)][2:]
    assert len(ends) == 12
    assert [end for end in ends if not any(each.startswith(end[0]) and each.endswith(end[1]) for each in page)] == []


@pytest.mark.takes("four programs, compiled and simulated")
@pytest.mark.parametrize(
    ("variant", "more"),
    [
        # Per PE of a chain 2 cycles, per broadcast 2.
        ("a ramp of 1 cycle", (-14, -14, -32, -8)),
        ("a cycle more to start an operation", (17, 1, 4, 4)),
        ("a cycle more to switch tasks", (32, 2, 5, 3)),
        ("input queues of 2", (-2, 0, 0, 0)),
    ],
)
def test_a_constant_of_the_machine_is_worth_what_the_terms_say(variant, more, small):
    sizes = [(8, 1) if name == "allreduce_tree" else (8, 8) for name in PROGRAMS]
    simulated = {
        (row.program, row.width, row.height): row.simulated
        for row in small
        if row.arch == "wse2" and row.size.endswith(" 16")
    }
    usual = [simulated[name, *size] for name, size in zip(PROGRAMS, sizes, strict=True)]
    with ExitStack() as stack:
        for each in VARIANTS[variant]():
            stack.enter_context(each)
        changed = [run("wse2", *size, 16) for run, size in zip(PROGRAMS.values(), sizes, strict=True)]
    assert tuple(row.simulated - before for row, before in zip(changed, usual, strict=True)) == more
    assert [row for row in changed if row.unexplained] == []


def test_without_reads_in_the_same_bank_the_streamed_axpy_is_faster_by_that_term():
    row = PROGRAMS["sparse_axpy"]("wse2", 8, 8, 16)
    assert row.simulated - apart(8, 16) == row.terms["reads meet in a bank"] == 256
