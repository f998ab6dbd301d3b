"""A stencil scaled to the whole wafer: lines, rates and errors; the tables of docs/csl/fabric_cycles.md."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from benchmarks import fabric_stencil as stencil
from benchmarks.fabric_cycles import main
from benchmarks.fabric_stencil import COLUMNS, LONGEST, SIDES, Line, Scaled, Steady, line, rate, scaled
from cstool.csl.fabric.time_model import SIMULATOR
from tests.examples import examples

PAGE = (Path(__file__).parents[4] / "docs" / "csl" / "fabric_cycles.md").read_text(encoding="utf-8").splitlines()
points = st.lists(st.integers(1, 2000), min_size=3, max_size=9, unique=True)


@examples(50)
@given(start=st.floats(0, 5000), point=st.floats(1, 200), x=points)
def test_a_line_is_found_again(start, point, x):
    found = line(x, [start + point * each for each in x])
    assert found.point == pytest.approx(point, rel=1e-6)
    assert found.start == pytest.approx(start, abs=1e-6 * (start + point * max(x)))
    assert found.residual < 1e-9
    assert found.at(7) == pytest.approx(found.start + 7 * found.point)


@examples(30)
@given(x=points, seed=st.integers(0, 2**31))
def test_a_line_has_the_least_squares_of_relative_distances(x, seed):
    y = (300 + 70 * np.array(x)) * np.random.default_rng(seed).uniform(0.8, 1.2, len(x))

    def distances(coefficients):
        return (coefficients[0] * 1000 + coefficients[1] * np.array(x)) / y - 1

    found = line(x, y)
    best = minimize(lambda c: (distances(c) ** 2).sum(), [0.3, 70.0], method="Nelder-Mead", options={"xatol": 1e-9})
    squares = (distances([found.start / 1000, found.point]) ** 2).sum()
    assert squares <= best.fun + 1e-9
    assert found.residual == pytest.approx(np.abs(distances([found.start / 1000, found.point])).max())


@pytest.mark.parametrize("x", [[100, 200], [100, 100, 100]])
def test_two_points_are_no_evidence_of_a_line(x):
    with pytest.raises(ValueError, match="three points") as info:
        line(x, [7000] * len(x))
    assert str(info.value) == f"a line must have three points or more, not all the same, got {x}"


def test_the_published_time_is_the_published_rate():
    # Table II: 1,000 steps in 0.0761 s.
    assert rate(0.0761e-3 * stencil.CLOCK, LONGEST) == pytest.approx(stencil.PUBLISHED, abs=0.5)
    assert rate(1e4, 100, pes=1) == pytest.approx(stencil.FLOPS * 100 * 0.85e9 / 1e4 / 1e12)


def test_published_times_are_those_of_the_published_throughput():
    # Table III, in Gcell/s: the paper has both.
    throughput = [8688.76, 9303.26, 9492.89, 9614.15, 9786.51, 9885.04, 9936.79]
    found = [SIDES[0] * SIDES[1] * points / time / 1e3 for points, (_, time) in COLUMNS.items()]
    np.testing.assert_allclose(found, throughput, rtol=2e-4)


def test_an_error_has_all_its_parts():
    columns = [Steady(13, n, 10.0 + 70 * n, 0.99 * (10 + 70 * n), 1.01 * (10 + 70 * n)) for n in (100, 300, 1000)]
    sizes = [Steady(13, 50, 990, 980, 1000), Steady(24, 50, 1010, 1000, 1020)]
    found = scaled(columns, sizes, 0.75, {"memory": 0.04, "fabric": 0.08})
    code = 42 * 30 * 3 / 70_010
    assert list(found.parts.values()) == pytest.approx([0.03, 0.02, code, 0.01, 0.01, 0.0], abs=1e-9)
    assert found.error == pytest.approx(math.hypot(0.03, 0.02, code, 0.01, 0.01))
    assert found.rate == pytest.approx(51 * 1000 * 755 * 994 * 0.85e9 / 70_010 / 1e12)


@pytest.mark.parametrize("sides", ["8", "13,x", ""])
def test_a_fabric_has_a_pe_with_all_neighbours(sides, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fabric_cycles", "--stencil", "--sides", sides])
    with pytest.raises(SystemExit):
        main()
    said = f"fabric_cycles: error: argument --sides: must be numbers of 9 or more, such as 13,24, got {sides!r}"
    assert capsys.readouterr().err.splitlines()[-1] == said


def below(header: str) -> list[list[str]]:
    """Rows of the page's table with this header."""
    lines = PAGE[PAGE.index(header) + 2 :]
    return [[cell.strip() for cell in text.strip("|").split("|")] for text in lines[: lines.index("")]]


def step(side: str, points: str, cycles: str, span: str) -> Steady:
    least, most = span.split(" to ")
    return Steady(*(int(each.replace(",", "")) for each in (side, points)), *map(number, (cycles, least, most)))


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.fixture(scope="module")
def columns() -> list[Steady]:
    rows = below(next(stencil.by_column([])))
    return [step(str(stencil.SMALLEST), what.split(", ")[0], cycles, span) for what, cycles, span, *_ in rows]


@pytest.fixture(scope="module")
def sizes() -> list[Steady]:
    return [step(what.split(" x ")[0], "50", cycles, span) for what, cycles, span in below(next(stencil.by_side([])))]


def test_times_of_the_page_follow_from_its_cycles(columns):
    assert [text for text in stencil.by_column(columns) if text not in PAGE] == []


def test_the_rate_of_the_page_and_its_error_follow_from_its_tables(columns, sizes):
    causes = dict(below(next(stencil.by_cause(Scaled(Line(0, 1, 0), {})))))
    share, memory, fabric = (
        float(re.search(pattern, " ".join(causes)).group(1)) / 100
        for pattern in (r"memory, (\d+)%", r"of the cycles: ([\d.]+)%", r"fabric, \d+%: ([\d.]+)%")
    )
    found = scaled(columns, sizes, share, {"memory": memory, "fabric": fabric})
    rows = below(f"| {SIDES[0]} x {SIDES[1]} PEs, {LONGEST:,} points | TFLOP/s |")
    assert rows[1] == ["published", f"{stencil.PUBLISHED:.0f}"]
    simulated, error = map(float, rows[0][1].split(" +- "))
    assert found.rate == pytest.approx(simulated, abs=0.6)
    assert found.rate * found.error == pytest.approx(error, abs=1.1)
    assert [float(each.removesuffix("%")) for each in causes.values()] == pytest.approx(
        [100 * part for part in (*found.parts.values(), found.error)], abs=0.11
    )


@pytest.mark.lab
@pytest.mark.takes("compiles and simulates fabrics with all kinds of PEs, five times")
def test_simulated_rows_are_those_of_the_page():
    first = stencil.steady(stencil.SMALLEST, 100, 100)
    assert f"| 100, 100 | {first.cycles:,.1f} | {first.least:,.1f} to {first.most:,.1f} |" in "\n".join(PAGE)
    assert list(stencil.by_side([stencil.steady(stencil.SMALLEST, 50, 50)]))[-1] in PAGE
    assert list(stencil.by_begin([(48, 48)]))[-1] in PAGE


@pytest.mark.lab
@pytest.mark.takes("compiles a program for each of 45 PEs")
def test_stamps_are_those_of_the_script():
    page = (Path(__file__).parents[4] / "docs" / "csl" / "examples.md").read_text(encoding="utf-8")
    cycles = stencil.stamps(SIMULATOR, 9, 5, 24, 12, 7)
    assert cycles.shape == (5, 9)
    assert f"| wave_25 | 9 x 5 | 24 | {cycles.max() / 7:,.0f} | a time step |" in page
