"""Pictures: the same bytes each time, nothing off the page, letters that fit."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Polygon
from matplotlib.path import Path as Outline
from matplotlib.text import Text

from cstool.ir import Artifact, Region, Route, SramEntry
from cstool.pictures.account import merge_entries, spread
from cstool.pictures.draw import draw_picture, draw_streaming
from cstool.pictures.floorplan import draw_floorplan
from cstool.pictures.lettering import LINE_HEIGHT, fit_text, text_width, wrap_text
from cstool.pictures.region_names import fit_number
from cstool.pictures.theme import dark
from cstool.short_names import group_name, short_name
from cstool.words import bytes_text, digits_text, seconds_text
from tests.unit.pictures.artifacts import pipelined, streaming

ARTIFACTS = {
    "3 regions, 4 replicas": lambda: pipelined(3, (2, 2)),
    "100 regions": lambda: pipelined(100),
    "streaming": streaming,
    "1,000 layers": lambda: streaming(1000, width=100_000, tokens_per_pe=3, groups=1),
}
ROOT = Path(__file__).parents[3]


def figure_of(artifact: Artifact):
    return draw_streaming(artifact) if artifact.pipelined is None else draw_floorplan(artifact, "work")


@pytest.mark.parametrize("name", ARTIFACTS)
def test_nothing_is_cut_off(name):
    figure = figure_of(ARTIFACTS[name]())
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    assert len(boxes) > 10
    width, height = figure.bbox.width, figure.bbox.height
    outside = [said for said, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height]
    assert outside == []


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


@pytest.mark.parametrize("count", [3, 62, 100])
def test_routes_run_clear_of_names(count):
    """Neither a line nor the head of an arrow lies over the name of a region."""
    artifact = with_inputs(pipelined(count))
    figure = figure_of(artifact)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    names = {short_name(stage.name) for stage in artifact.pipelined.stages}
    texts = [text for text in figure.findobj(Text) if text.get_text().replace("\n", " ") in names]
    (axes,) = {text.axes for text in texts}
    lines = [line.get_transform().transform_path(line.get_path()) for line in axes.lines]
    heads = [patch.get_window_extent(renderer) for patch in axes.patches if isinstance(patch, Polygon)]
    assert (len(texts) >= 2, len(heads)) == (True, len(artifact.pipelined.routes))
    for text in texts:
        box = text.get_window_extent(renderer).padded(-0.5)
        struck = [line for line in lines if Outline(line.vertices).intersects_bbox(box, filled=False)]
        assert struck == [], text.get_text()
        assert [head for head in heads if box.overlaps(head)] == [], text.get_text()


def with_inputs(artifact):
    """Return an artifact whose inputs run through the middle of all regions."""
    plan = artifact.pipelined
    last = plan.stages[-1].region
    ways = [(0, stage.region.y + stage.region.height // 2) for stage in plan.stages[:: max(1, len(plan.stages) // 5)]]
    end = last.x + last.width - 1
    routes = [
        Route(f"input {n}", -1, len(plan.stages) - 1, "input", 20, 1, (start, (end, start[1])))
        for n, start in enumerate(ways)
    ]
    return replace(artifact, pipelined=replace(plan, routes=(*plan.routes, *routes)))


def test_a_flat_floorplan_has_what_explains_it_below():
    artifact = pipelined(3, (1, 11))
    said = {text.get_text(): text for text in figure_of(artifact).findobj(Text)}
    name = short_name(artifact.pipelined.stages[-1].name)
    legend, region = (said[text].axes.get_position() for text in ("Routes and regions", name))
    assert legend.y1 < region.y0


def test_an_svg_says_what_it_shows_in_letters(tmp_path):
    draw_picture(pipelined(3), tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text(encoding="utf-8")
    root, space = ElementTree.fromstring(svg), "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    assert [child.tag for child in root[:2]] == [f"{space}title", f"{space}desc"]
    assert root[0].text.endswith("on cs2: pipelined (modelled)")
    assert root[1].text.endswith("Cycles are modelled, not measured.")
    texts = {element.text: element for element in root.iter(f"{space}text")}
    assert "slowest stage" in texts
    assert "font-family: 'DejaVu Sans', Verdana, sans-serif" in texts["slowest stage"].get("style")
    assert len(svg) < 80_000


def test_a_dark_page_has_light_letters(tmp_path):
    for theme in ("light", "dark"):
        draw_picture(pipelined(3), tmp_path / f"{theme}.svg", theme=theme)
    light, other = ((tmp_path / f"{theme}.svg").read_text(encoding="utf-8") for theme in ("light", "dark"))
    ink, paper = "#1a1a1a", "#ffffff"
    assert ink in light
    assert to_hex(dark(ink)) in other
    assert f"fill: {to_hex(dark(paper))}" in other
    assert ink not in other
    assert light.count("<text") == other.count("<text")


SCRIPT = """
import sys
from pathlib import Path
from cstool.pictures.draw import draw_picture
from cstool.pictures.estimate import draw_estimate
from tests.unit.pictures.artifacts import pipelined
from tests.unit.pictures.estimates import PICTURES
draw_picture(pipelined(3), Path(sys.argv[1]))
draw_estimate(PICTURES["both"], Path(sys.argv[2]))
"""


def test_svg_is_the_same_in_every_process(tmp_path):
    for seed in "78":
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        paths = [tmp_path / f"{name}{seed}.svg" for name in ("picture", "estimate")]
        subprocess.run([sys.executable, "-c", SCRIPT, *paths], env=environment, check=True)
    for name in ("picture", "estimate"):
        one, other = ((tmp_path / f"{name}{seed}.svg").read_bytes() for seed in "78")
        assert one == other
        assert not re.search(rb"<dc:date>|matplotlib.org/\"", one)
        assert ElementTree.fromstring(one).tag == "{http://www.w3.org/2000/svg}svg"


def test_png_has_150_dpi(tmp_path):
    draw_picture(pipelined(3), tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    at = data.index(b"pHYs") + 4
    assert int.from_bytes(data[at : at + 4]) == round(150 / 0.0254)  # per metre


def test_colors_say_what_was_asked(tmp_path):
    for color_by in ("work", "sram"):
        draw_picture(pipelined(3), tmp_path / f"{color_by}.svg", color_by)
    assert (tmp_path / "work.svg").read_bytes() != (tmp_path / "sram.svg").read_bytes()


@given(st.text("abcxyz. 0123", min_size=1).filter(str.split), st.floats(1, 400), st.floats(1, 400))
def test_letters_fit(text, width, height):
    found = fit_text(text, width, height, 11.0)
    if found is None:
        return
    lines = found.text.split("\n")
    along, across = (width, height) if found.rotation == 0 else (height, width)
    assert 5.0 <= found.size_pt <= 11.0
    assert found.text.split() == text.split()
    assert max(text_width(line, found.size_pt) for line in lines) <= along * (1 + 1e-9)
    assert len(lines) * found.size_pt * LINE_HEIGHT <= across * (1 + 1e-9)


def test_letters_that_do_not_fit():
    assert fit_text("embedding", 20, 4, 11.0) is None
    found = fit_text("embedding", 12, 200, 9.0)
    assert found is not None
    assert found.rotation == 90


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


def test_numbers_of_the_list_are_in_the_picture():
    artifact = pipelined(300)
    said = [text.get_text() for text in figure_of(artifact).findobj(Text)]
    listed = [text.split()[0] for text in said if re.match(r"\d+  ", text)]
    assert len(listed) > 10
    assert set(listed) <= set(said)


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


def test_layers_that_are_alike_have_one_name():
    assert group_name("transformer_decoder.layers.3.self_attn") == "L* attention"


def test_quantities():
    assert [seconds_text(s) for s in (0, 0.0656249, 11353.0)] == ["0 s", "65.6 ms", "3.15 h"]
    assert [bytes_text(b) for b in (12, 999, 9_174_097_920)] == ["12 B", "999 B", "9.17 GB"]
    assert [digits_text(v) for v in (0.001234, 12.0, 0.9999, 123456.7)] == ["0.00123", "12", "1", "123,457"]
