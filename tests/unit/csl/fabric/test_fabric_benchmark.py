"""The benchmark of the simulated fabric measures what it says, at small sizes."""

from pathlib import Path

import pytest

from benchmarks import fabric
from cstool.csl.language.compile import compile_csl

SMALL = {"width": 2, "height": 2, "rows": 3, "columns": 3, "steps": 1}


def test_the_exchange_is_the_stencil_without_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "HALO", SMALL)
    alone = fabric.simulate(fabric.exchange(), "run")
    whole = fabric.simulate(fabric.compiled("stencil", SMALL), "run")
    # Each PE sends a column of 3 and a row of 3 + 2, down a link and a ramp each.
    assert (alone.wavelets, alone.hops) == (whole.wavelets, whole.hops) == (4 * 8, 2 * 4 * 8)
    # Left out: of each of 3 rows, 5 operations on 3 elements.
    assert whole.elements - alone.elements == 4 * 3 * 5 * 3


def test_the_layout_has_every_pe_and_three_colors_on_each(tmp_path: Path) -> None:
    (tmp_path / "layout.csl").write_text(fabric.LAYOUT)
    (tmp_path / "pe.csl").write_text(fabric.PE)
    program = compile_csl(tmp_path / "layout.csl", "wse2", {"width": 5, "height": 4})
    assert program.tiles.shape == (4, 5)
    assert (program.tiles >= 0).all()
    assert {color: int((routes >= 0).sum()) for color, routes in program.routes.items()} == {0: 20, 1: 20, 2: 20}
