"""Pictures of fabrics: nothing off the page, no text over another, every arrow that there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from cstool.csl.fabric.arch import OPPOSITE, STEP
from cstool.csl.pictures.grid import _ticks, draw_lines, grid_size, swatches
from cstool.csl.pictures.routes import routes_page
from cstool.csl.pictures.strokes import positions, strokes_of, union
from cstool.csl.verbs import draw_routes
from cstool.foundation.drawing.lettering import text_width
from cstool.foundation.drawing.page import SMALL_PT
from tests.examples import examples
from tests.unit.csl.fabric.waits import config
from tests.unit.csl.pictures.fabrics import many, switched
from tests.unit.plan.pictures.drawn import ALL_PORTS, said


def test_a_page_of_routes_says_what_it_shows(tmp_path):
    texts = said("fabric", "switches")
    assert texts[0] == "out: routes of 4 colors on 4 x 3 PEs of wse2"
    assert "color 0: 9 PEs can send, 3 can take" in texts
    assert {"left.csl, 3 PEs", "pe.csl, 6 PEs", "right.csl, 3 PEs"} <= set(texts)
    assert "a to d: the arrow is there in this switch position, a is the first (●: sends, ○: takes)" in texts
    # A large fabric has a hue for each kind of route.
    texts = [text.get_text() for text in routes_page(many(64, 64), "out", [1]).findobj(Text)]
    assert {"NORTH to RAMP, SOUTH: 3,968 PEs", "NORTH to RAMP: 64 PEs", "RAMP to SOUTH: 64 PEs"} <= set(texts)
    draw_routes(switched(), tmp_path / "a.svg", "out")
    assert (tmp_path / "a.svg").stat().st_size < 80_000


def test_a_rectangle_is_to_scale_but_for_very_long_ones_and_its_numbers_are_a_round_step_apart():
    assert [grid_size(*size) for size in ((3, 2), (40, 20), (2000, 1), (1, 2000))] == [
        *((186.0, 124.0), (400.0, 200.0)),
        *((400.0, 10.0), (10.0, 400.0)),
    ]
    steps = {
        (12, 20.0, 0): 1,
        (12, 5.0, 0): 5,
        (40, 4.0, 1): 5,
        (40, 6.0, 1): 2,
        (750, 0.4, 1): 50,
        (2000, 0.2, 1): 100,
    }
    for place, step in steps.items():
        assert _ticks(*place) == range(0, place[0], step)


def test_a_legend_has_as_many_columns_as_there_is_room_for_and_lines_may_be_none():
    samples = dict.fromkeys("abc", (1.0, 1.0, 1.0))
    column = max(text_width(name, SMALL_PT) for name in samples) + 30
    sizes = {1.0: (1, 3), 2.5 * column: (2, 2), 1000.0: (3, 1)}
    for room, (columns, rows) in sizes.items():
        block = swatches(samples, "", room)
        assert (block.width_pt, block.height_pt) == (columns * column, 2 + 11 * rows)
    axes = Figure().add_subplot()
    draw_lines(axes, [], "black", 1.0)
    assert not axes.patches


def test_a_page_of_heat_says_what_was_fullest():
    texts = said("fabric", "heat of 4 x 3")
    assert texts[0] == "gemv: 4 x 3 PEs of wse2 in a run (simulated)"
    assert " ".join(texts[1].split()) == (
        "1,000 cycles, simulated with the times of the vendor's simulator. PEs had a task in 57.4% of them. "
        "The link from PE 2.2 to the EAST carried most: 126 wavelets, one in 12.6% of the cycles."
    )
    assert "72.5" in texts
    assert "No wavelet left a PE for another." in " ".join(said("fabric", "heat of one PE")[1].split())


# --- strokes ---


def test_strokes_by_hand():
    strokes = strokes_of({(0, 0): config("R>E"), (1, 0): config("W>R")}, (2, 1), 60.0)
    assert (strokes.sources, strokes.sinks) == ([(0.5, 0.5)], [(1.5, 0.5)])
    assert sorted(strokes.lines) == [[(0.5, 0.5), (0.8, 0.5), (1.0, 0.5)], [(1.0, 0.5), (1.2, 0.5), (1.5, 0.5)]]
    assert [head[0] for head in strokes.heads] == [(1.2, 0.5)]
    assert (strokes.dead, strokes.faint, strokes.letters) == ([], [], [])
    # What nobody takes is marked, and what nobody sends is faint; beyond the edges is the host of a stream.
    strokes = strokes_of({(0, 0): config("R>E"), (1, 0): config("N>R")}, (2, 1), 60.0)
    assert strokes.lines == []
    assert strokes.dead[0] == [(0.5, 0.5), (0.8, 0.5), (1.0, 0.5)]
    assert len(strokes.dead) == 3
    assert strokes.faint == [[(1.5, 0.0), (1.5, 0.2), (1.5, 0.5)]]
    configs = {(0, 0): config("W>R")}
    assert strokes_of(configs, (1, 1), 60.0).faint
    assert strokes_of(configs, (1, 1), 60.0, is_host=True).faint == []
    assert len(strokes_of(configs, (1, 1), 60.0, is_host=True).lines) == 1
    found = config("W>E", "R>E", "W>R")
    assert [positions(found, "rx", 1), positions(found, "tx", 2), positions(found, "rx", 0)] == ["ac", "ab", "b"]
    strokes = strokes_of({(0, 0): found}, (1, 1), 60.0)
    assert sorted(text for _, text, _ in strokes.letters) == ["ab", "ac", "○c", "●b"]


@pytest.mark.parametrize(
    "configs", [{(1, 1): config("R>N", "R>W", "R>E", "R>S"), (1, 0): config("S>R"), (0, 1): config("E>R")}, ALL_PORTS]
)
def test_letters_lie_over_no_line(configs):
    scale = 62.0
    strokes = strokes_of(configs, (3, 3), scale)
    lines = [*strokes.lines, *strokes.faint, *strokes.dead]
    assert len(strokes.letters) >= 5
    for (x, y), text, side in strokes.letters:
        width, height = text_width(text, SMALL_PT) / scale, 0.8 * SMALL_PT / scale
        left = x if side == "left" else x - width
        box = Bbox.from_extents(left, y - height / 2, left + width, y + height / 2)
        struck = [line for line in lines if Outline(line).intersects_bbox(box, filled=False)]
        assert struck == [], text


bits = st.integers(0, 31)
routes = st.builds(lambda rx, tx: (rx, tx), bits, bits)


@given(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 2)), st.lists(routes, min_size=1, max_size=4)))
@examples(60)
def test_every_port_has_one_stroke_and_a_head_where_both_sides_agree(found):
    letters = "RWENS"
    configs = {
        at: config(
            *(f"{''.join(c for n, c in enumerate(letters) if rx >> n & 1)}>"
              f"{''.join(c for n, c in enumerate(letters) if tx >> n & 1)}" for rx, tx in pairs)
        )
        for at, pairs in found.items()
    }  # fmt: skip
    strokes = strokes_of(configs, (4, 3), 60.0)
    agreed = ins = outs = 0
    for (x, y), each in configs.items():
        rx, tx = union(each)
        for port in range(1, 5):
            beside = configs.get((x + STEP[port][0], y + STEP[port][1]))
            other = union(beside)[1] if beside is not None else 0
            ins += rx >> port & 1
            outs += tx >> port & 1
            agreed += rx >> port & other >> OPPOSITE[port] & 1
    assert len(strokes.heads) == agreed
    assert len(strokes.lines) + len(strokes.faint) + len(strokes.dead) // 3 == ins + outs
