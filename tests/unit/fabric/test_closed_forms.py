"""Simulated cycles of CSL programs beside the closed forms of `cstool.perf`: small rows of docs/fabric_cycles.md."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.closed_forms import PROGRAMS, VARIANTS, Row, apart, rows, table, terms

PAGE = Path(__file__).parents[3] / "docs" / "fabric_cycles.md"

EXPECTED = {
    # program, arch, width, height, length: simulated, closed form
    ("sparse_axpy", "wse2", 4, 4, 4): (727, 230),
    ("sparse_axpy", "wse2", 4, 4, 16): (1159, 662),
    ("sparse_axpy", "wse2", 4, 4, 64): (2887, 2390),
    ("row_reduce", "wse2", 4, 4, 1): (34, 19),
    ("row_reduce", "wse2", 4, 4, 16): (49, 34),
    ("row_reduce", "wse2", 4, 4, 128): (161, 146),
    ("allreduce_two_phase", "wse2", 4, 4, 1): (98, 56),
    ("allreduce_two_phase", "wse2", 4, 4, 16): (158, 116),
    ("allreduce_two_phase", "wse2", 4, 4, 128): (606, 564),
    ("allreduce_tree", "wse2", 4, 1, 1): (55, 24),
    ("allreduce_tree", "wse2", 4, 1, 16): (100, 69),
    ("allreduce_tree", "wse2", 4, 1, 128): (436, 405),
    ("sparse_axpy", "wse2", 8, 8, 4): (751, 262),
    ("sparse_axpy", "wse2", 8, 8, 16): (1183, 694),
    ("sparse_axpy", "wse2", 8, 8, 64): (2911, 2422),
    ("row_reduce", "wse2", 8, 8, 1): (58, 43),
    ("row_reduce", "wse2", 8, 8, 16): (73, 58),
    ("row_reduce", "wse2", 8, 8, 128): (185, 170),
    ("allreduce_two_phase", "wse2", 8, 8, 1): (154, 112),
    ("allreduce_two_phase", "wse2", 8, 8, 16): (214, 172),
    ("allreduce_two_phase", "wse2", 8, 8, 128): (662, 620),
    ("allreduce_tree", "wse2", 8, 1, 1): (75, 38),
    ("allreduce_tree", "wse2", 8, 1, 16): (135, 98),
    ("allreduce_tree", "wse2", 8, 1, 128): (583, 546),
    ("sparse_axpy", "wse3", 8, 8, 4): (751, 262),
    ("sparse_axpy", "wse3", 8, 8, 16): (1183, 694),
    ("sparse_axpy", "wse3", 8, 8, 64): (2911, 2422),
    ("row_reduce", "wse3", 8, 8, 1): (58, 43),
    ("row_reduce", "wse3", 8, 8, 16): (73, 58),
    ("row_reduce", "wse3", 8, 8, 128): (185, 170),
    ("allreduce_two_phase", "wse3", 8, 8, 1): (154, 112),
    ("allreduce_two_phase", "wse3", 8, 8, 16): (214, 172),
    ("allreduce_two_phase", "wse3", 8, 8, 128): (662, 620),
    ("allreduce_tree", "wse3", 8, 1, 1): (75, 38),
    ("allreduce_tree", "wse3", 8, 1, 16): (135, 98),
    ("allreduce_tree", "wse3", 8, 1, 128): (583, 546),
}


def _key(row: Row) -> tuple[str, str, int, int, int]:
    return row.program, row.arch, row.width, row.height, int(row.size.split()[1])


def test_small_rows_take_the_cycles_of_the_page_and_every_difference_is_explained():
    found = list(rows(most=8))
    assert {_key(row): (row.simulated, row.closed_form) for row in found} == EXPECTED
    assert [row for row in found if row.unexplained] == []
    page = PAGE.read_text().splitlines()
    assert [line for line in [*table(found), *terms(found)] if line not in page] == []


@pytest.mark.parametrize(
    ("variant", "more"),
    [
        # Per PE of a chain 2 cycles, per broadcast 2; at the streamed AXPY the first weights come 2 sooner, too.
        ("a ramp of 1 cycle", (-16, -14, -32, -8)),
        ("7 cycles to start an operation, not 6", (21, 1, 4, 4)),
        ("4 cycles to switch tasks, not 3", (25, 2, 5, 3)),
        ("input queues of 2", (0, 0, 0, 0)),
    ],
)
def test_a_constant_of_the_machine_is_worth_what_the_terms_say(variant, more):
    sizes = [(8, 1) if name == "allreduce_tree" else (8, 8) for name in PROGRAMS]
    usual = [EXPECTED[name, "wse2", *size, 16][0] for name, size in zip(PROGRAMS, sizes, strict=True)]
    with ExitStack() as stack:
        for each in VARIANTS[variant]():
            stack.enter_context(each)
        changed = [run("wse2", *size, 16) for run, size in zip(PROGRAMS.values(), sizes, strict=True)]
    assert tuple(row.simulated - before for row, before in zip(changed, usual, strict=True)) == more
    assert [row for row in changed if row.unexplained] == []


def test_without_reads_in_the_same_bank_the_streamed_axpy_is_faster_by_that_term():
    row = PROGRAMS["sparse_axpy"]("wse2", 8, 8, 16)
    assert row.simulated - apart(8, 16) == row.terms["reads meet in a bank"] == 256
