"""Pictures: the same bytes each time, nothing off the page, letters that fit."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Polygon
from matplotlib.path import Path as Outline
from matplotlib.text import Text

from cstool.foundation.drawing.figure import write_figure
from cstool.foundation.drawing.lettering import LINE_HEIGHT, fit_text, text_width, wrap_text
from cstool.foundation.drawing.theme import dark
from cstool.model.ir import Artifact, Region, Route, SramEntry
from cstool.model.short_names import group_name, short_name
from cstool.plan.pictures.account import merge_entries, spread
from cstool.plan.pictures.draw import draw_artifact, draw_streaming
from cstool.plan.pictures.floorplan import draw_floorplan
from cstool.plan.pictures.region_names import fit_number
from tests.unit.plan.pictures.artifacts import pipelined, streaming
from tests.unit.plan.pictures.drawn import draw, said


def figure_of(artifact: Artifact):
    return draw_streaming(artifact) if artifact.pipelined is None else draw_floorplan(artifact, "work")


@pytest.mark.parametrize("rows", [8, 500, 994])
def test_rows_without_tokens_are_not_said_to_work(rows):
    """The wafer is 330 points high, 46 below the top; sums go along rows that have tokens, if these are so many."""
    artifact = streaming()
    layout = replace(artifact.streaming.layout, rows=rows)
    active = 750 * rows
    artifact = replace(artifact, active_pes=active, streaming=replace(artifact.streaming, layout=layout))
    texts = [text for text in figure_of(artifact).findobj(Text) if text.get_text()]
    assert any(text.get_text().startswith(f"{active:,} of 745,500 PEs work on") for text in texts)
    (sums,) = [text for text in texts if text.get_text().startswith("partial sums")]
    assert sums.get_position()[1] == pytest.approx(46 + max(44, 0.8 * rows * min(300 / 750, 330 / 994)) - 5)


@pytest.mark.parametrize("count", [3, 40, pytest.param(100, marks=pytest.mark.lab)])
def test_routes_run_clear_of_names(count):
    """Neither a line nor the head of an arrow lies over the name of a region."""
    artifact = with_inputs(pipelined(count))
    figure, boxes = draw(lambda: figure_of(artifact))
    names = {short_name(stage.name) for stage in artifact.pipelined.stages}
    texts = [(text, box) for text, box in boxes if text.get_text().replace("\n", " ") in names]
    (axes,) = {text.axes for text, _ in texts}
    renderer = FigureCanvasAgg(figure).get_renderer()
    lines = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
    heads = [patch.get_window_extent(renderer) for patch in axes.patches if isinstance(patch, Polygon)]
    assert (len(texts) >= 2, len(heads)) == (True, len(artifact.pipelined.routes))
    for text, whole in texts:
        box = whole.padded(-0.5)
        struck = [line for line in lines if Outline(line.vertices).intersects_bbox(box, filled=False)]
        assert (struck, [head for head in heads if box.overlaps(head)]) == ([], []), text.get_text()


def with_inputs(artifact):
    """Return an artifact whose inputs run through the middle of all regions."""
    plan = artifact.pipelined
    end, every = plan.stages[-1].region, max(1, len(plan.stages) // 5)
    heights = [stage.region.y + stage.region.height // 2 for stage in plan.stages[::every]]
    routes = [
        Route(f"input {n}", -1, len(plan.stages) - 1, "input", 20, 1, ((0, y), (end.x + end.width - 1, y)))
        for n, y in enumerate(heights)
    ]
    return replace(artifact, pipelined=replace(plan, routes=(*plan.routes, *routes)))


def test_a_flat_floorplan_has_what_explains_it_below():
    artifact = pipelined(3, (1, 11))
    said = {text.get_text(): text for text in figure_of(artifact).findobj(Text)}
    name = short_name(artifact.pipelined.stages[-1].name)
    legend, region = (said[text].axes.get_position() for text in ("Routes and regions", name))
    assert legend.y1 < region.y0


def test_an_svg_says_what_it_shows_in_letters_and_colors_say_what_was_asked(tmp_path):
    for name, color_by, theme in (("a", "work", "light"), ("b", "sram", "light"), ("c", "work", "dark")):
        write_figure(lambda: draw_artifact(pipelined(3), color_by), tmp_path / f"{name}.svg", theme)  # noqa: B023
    svg, sram, night = ((tmp_path / f"{name}.svg").read_text(encoding="utf-8") for name in "abc")
    root, space = ElementTree.fromstring(svg), "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert [child.tag for child in root[:2]] == [f"{space}title", f"{space}desc"]
    assert root[0].text.endswith("on cs2: pipelined (modelled)")
    assert root[1].text.endswith("Cycles are modelled, not measured.")
    texts = {element.text: element for element in root.iter(f"{space}text")}
    assert "font-family: 'DejaVu Sans', Verdana, sans-serif" in texts["slowest stage"].get("style")
    assert len(svg) < 80_000
    assert svg != sram
    assert to_hex(dark("#1a1a1a")) in night
    assert f"fill: {to_hex(dark('#ffffff'))}" in night


@given(st.text("abcxyz. 0123", min_size=1).filter(str.split), st.floats(1, 400), st.floats(1, 400))
@example("embedding", 20, 4)
@example("embedding", 12, 200)
def test_letters_fit(text, width, height):
    found = fit_text(text, width, height, 11.0)
    if text == "embedding":
        assert (found and found.rotation) == {4: None, 200: 90}[height]
    if found is None:
        return
    lines = found.text.split("\n")
    along, across = (width, height) if found.rotation == 0 else (height, width)
    assert 5.0 <= found.size_pt <= 11.0
    assert found.text.split() == text.split()
    assert max(text_width(line, found.size_pt) for line in lines) <= along * (1 + 1e-9)
    assert len(lines) * found.size_pt * LINE_HEIGHT <= across * (1 + 1e-9)


@pytest.mark.parametrize(
    ("region", "size_pt", "rotation"),
    [
        (Region(0, 0, 500, 100), 7.0, 0),
        (Region(0, 0, 500, 7), 5.3333, 0),  # 5 points less the line, in digits 0.75 high
        (Region(0, 0, 7, 500), 5.3333, 90),
        (Region(0, 0, 500, 1), 3.5, 0),
    ],
)
def test_numbers_are_always_written(region, size_pt, rotation):
    found = fit_number(12, region, 5 / 7)
    assert (found.text, found.rotation) == ("12", rotation)
    assert found.size_pt == pytest.approx(size_pt, abs=1e-4)


@pytest.mark.lab
def test_numbers_of_the_list_are_in_the_picture():
    texts = said("artifact", "100 regions")
    listed = [text.split()[0] for text in texts if re.match(r"\d+  ", text)]
    assert len(listed) > 10
    assert set(listed) <= set(texts)


def test_lines_are_no_wider_than_asked():
    text = "one of many words that go on and on"
    lines = wrap_text(text, 60, 8).split("\n")
    assert len(lines) > 1
    assert " ".join(lines) == text
    assert all(text_width(line, 8) <= 60 for line in lines)


@given(st.lists(st.floats(0, 300), max_size=20).map(sorted))
def test_labels_keep_their_distance(middles):
    places = spread(middles, 10.0, 0.0, 300.0)
    assert all(after - before >= 10.0 - 1e-6 for before, after in zip(places, places[1:], strict=False))
    assert all(5.0 - 1e-6 <= place <= 295.0 + 1e-6 for place in places)


def test_smallest_entries_become_one():
    entries = [SramEntry(str(size), size, "") for size in (5, 1, 9, 2)]
    assert merge_entries(entries, 4) == entries
    found = merge_entries(entries, 3)
    assert [(entry.name, entry.bytes) for entry in found] == [("5", 5), ("9", 9), ("2 smaller ones", 3)]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("transformer_decoder.layers.3.ffn.ffn.0.linear_layer", "L3 ffn.0"),
        ("transformer_decoder.layers.{n}.self_attn.proj_output_dense_layer", "L* out"),
        ("transformer_decoder.layers.11.self_attn", "L11 attention"),
        ("embedding_layer.word_embeddings", "embedding"),
        ("fc_layers.0", "fc_layers.0"),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short
    assert group_name(name) == re.sub(r"L\d+", "L*", short)
