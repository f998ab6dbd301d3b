"""Lines of the source, followed while code runs: which ones, when, and without a change to the run."""

import sys
from dataclasses import replace

import numpy as np

from cstool.csl.fabric.lines import files_of, place_on
from cstool.csl.fabric.program import FabricProgram, PEProgram, Symbol
from cstool.csl.fabric.simulation import Simulation

CODE = """
def program(pe):
    def inner():  # lib/b.csl:7:1
        pe.cycles += 5

    def run():  # a.csl:10:1
        pe.cycles += 2
        for each in range(2):  # a.csl:12:3
            pe.cycles += 3
        inner()  # a.csl:14:3

    return {"run": run}
"""
PROGRAM = PEProgram("a.csl", "wse2", CODE)
RUN = Symbol("function", function="run", place="a.csl:10:1")


def launched(**hooks):
    fabric = FabricProgram("wse2", 1, 1, np.zeros((1, 1), np.int32), (PROGRAM,), {}, ())
    simulation = Simulation(fabric, **hooks)
    simulation.launch(0, RUN)
    simulation.run_until()
    return simulation


def test_lines_are_told_as_they_begin():
    found = []
    before = sys.gettrace()
    launched(on_line=lambda *line: found.append(line))
    assert sys.gettrace() is before
    start = found[0][0]
    told = [(time - start, place) for time, pe, place in found]
    # A line without a place counts to the line above it; the loop's line begins anew for each turn, and at the end.
    assert list(dict.fromkeys(told)) == [
        (0, "a.csl:10:1"),
        (2, "a.csl:12:3"),
        (5, "a.csl:12:3"),
        (8, "a.csl:12:3"),
        (8, "a.csl:14:3"),
        (8, "lib/b.csl:7:1"),
    ]
    assert {pe for _, pe, _ in found} == {0}


def test_following_changes_nothing():
    assert launched(on_line=lambda *line: None).stats() == launched().stats()
    assert launched().stats().pes[0].busy == 13


def test_places_of_lines():
    assert [place_on(CODE, number) for number in (0, 3, 4, 99)] == ["", "lib/b.csl:7:1", "", ""]
    assert files_of(CODE) == {"a.csl", "lib/b.csl"}
    assert files_of(replace(PROGRAM, code="x = 1").code) == set()
