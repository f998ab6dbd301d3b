"""The page of a run on the fabric in a real browser: numbers, slider, keys, colours, and a run that hung."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("selenium")

from cstool.csl.fabric.trace import read_trace
from cstool.csl.page.tracks import Sampled
from cstool.csl.verbs import run_directory, write_page
from tests.browser import CONTRASTS, ENTER, TAB, UNNAMED, Browser

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "csl"
LEFT, RIGHT, UP, DOWN, HOME, END = "\ue012", "\ue014", "\ue013", "\ue015", "\ue011", "\ue010"
TABLES = {
    "hops": "hops",
    "turns": "turns",
    "lines": "lines",
    "tasks": "tasks",
    "ops": "operations",
    "fills": "fills",
    "waits": "waits",
    "line_cycles": "line_cycles",
}
PIXELS = "document.getElementById(arguments[0]).toDataURL()"
"""what a canvas shows"""
HANGS = {
    "layout.csl": """
const memcpy = @import_module("<memcpy/get_params>", .{ .width = 2, .height = 1 });
layout {
  @set_rectangle(2, 1);
  for (@range(u16, 2)) |x| {
    const other = 1 - x;
    const mine = @get_color(x);
    const theirs = @get_color(other);
    @set_tile_code(x, 0, "pe.csl", .{ .memcpy_params = memcpy.get_params(x), .mine = mine, .theirs = theirs });
  }
  @set_color_config(0, 0, @get_color(0), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ EAST } } });
  @set_color_config(1, 0, @get_color(0), .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } });
  @set_color_config(1, 0, @get_color(1), .{ .routes = .{ .rx = .{ RAMP }, .tx = .{ WEST } } });
  @set_color_config(0, 0, @get_color(1), .{ .routes = .{ .rx = .{ EAST }, .tx = .{ RAMP } } });
  @export_name("run", fn()void);
}
""",
    "pe.csl": """
param memcpy_params;
param mine: color;
param theirs: color;
const memcpy = @import_module("<memcpy/memcpy>", memcpy_params);
var got = @zeros([2]f32);
const queue_out = @get_output_queue(2);
const queue_in = @get_input_queue(3);
const out = @get_dsd(fabout_dsd, .{ .extent = 2, .fabric_color = mine, .output_queue = queue_out });
const in = @get_dsd(fabin_dsd, .{ .extent = 2, .input_queue = queue_in });
const got_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> got[i] });
fn run() void {
  @fmovs(got_dsd, in); // each waits for the other, which has not sent yet
  @fmovs(out, got_dsd);
  memcpy.unblock_cmd_stream();
}
comptime {
  @initialize_queue(queue_in, .{ .color = theirs });
  @export_symbol(run);
}
""",
    "run.py": """
from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime
with SdkRuntime("out") as wafer:
    wafer.launch("run", nonblock=False)
""",
    "commands_wse2.sh": "set -e\ncslc layout.csl --arch=wse2 -o out --memcpy --channels=1\ncs_python run.py\n",
}


@pytest.fixture(scope="module")
def stencil(tmp_path_factory) -> Path:
    """A folder with the trace and the page of the stencil of the examples."""
    import shutil

    folder = tmp_path_factory.mktemp("stencil")
    shutil.copytree(EXAMPLES, folder / "csl")
    done = run_directory(folder / "csl" / "stencil", trace=folder / "stencil.trace", show=lambda _: None)
    assert done.code == 0
    write_page(folder / "stencil.trace", folder / "stencil.html")
    write_page(folder / "stencil.trace", folder / "sampled.html", every=10)
    return folder


@pytest.fixture(scope="module")
def hung(tmp_path_factory) -> Path:
    """The page of a run of two PEs that wait for one another."""
    folder = tmp_path_factory.mktemp("hung")
    for name, text in HANGS.items():
        (folder / name).write_text(text)
    assert run_directory(folder, trace=folder / "hung.trace", show=lambda _: None).code == 1
    write_page(folder / "hung.trace", folder / "hung.html")
    return folder / "hung.html"


@pytest.fixture
def visit(browser: Browser) -> Callable[..., None]:
    """Open a page, without a complaint."""

    def visit(path: Path, fragment: str = "", width: int = 1280, *, dark: bool = False) -> None:
        browser.view(width, dark=dark)
        browser.complaints()
        browser.open(f"{path.as_uri()}{fragment}")
        browser.wait("window.page !== undefined && document.getElementById('summary').textContent !== ''")

    return visit


def test_the_numbers_in_the_browser_are_those_of_the_trace(browser, visit, stencil):
    for name, every in (("stencil", 1), ("sampled", 10)):
        visit(stencil / f"{name}.html")
        sampled = Sampled(read_trace(stencil / "stencil.trace"), every)
        for table, tracks in TABLES.items():
            expected = getattr(sampled, tracks)()
            found = browser.js(
                f"[page.run.{table}.keys, [page.run.{table}.samples], page.run.{table}.values]"
                ".map((columns) => columns.map((column) => Array.from(column)))"
            )
            assert found[0] == [key.tolist() for key in expected.keys]
            assert found[1] == [expected.samples.tolist()]
            assert found[2] == [value.tolist() for value in expected.values]
        memory = browser.js("Array.from(page.run.memory)")
        assert memory == read_trace(stencil / "stencil.trace").context.memory.tolist()
        assert browser.complaints() == []


def test_states_are_those_of_the_trace(browser, visit, stencil):
    """Heat over the whole run is the share of busy cycles; wavelets of a link are those that it carried."""
    visit(stencil / "stencil.html")
    stats = json.loads((stencil / "csl" / "stencil" / "sim_stats.json").read_text())
    heat = browser.js("Array.from(page.run.heat('task', 0, page.run.lastSample).found)")
    cycles = stats["cycles"]
    np.testing.assert_allclose(heat, np.array(stats["pes"]["busy"]) / (cycles + 1), rtol=1e-6)
    links = browser.js("Array.from(page.run.tiles, (_, pe) => page.run.links(pe, 0, page.run.lastSample, -1))")
    assert np.array(links).T.tolist() == list(stats["links"].values())
    lines = browser.js("[...page.source.cycles(-1).values()].reduce((sum, count) => sum + count, 0)")
    assert lines == sum(stats["pes"]["busy"])


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_looks(browser, visit, stencil, hung, width, dark):
    """Both schemes and widths: nothing that cannot be read, nothing without a name, nothing beside the page."""
    for path in (stencil / "stencil.html", hung):
        visit(path, "#pe=1.0&cycle=24", width, dark=dark)
        assert browser.js(CONTRASTS) == []
        assert browser.js(UNNAMED) == []
        assert browser.js("document.documentElement.scrollWidth") <= width
        shade = browser.js("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
        assert (sum(shade) < 128) is dark
        assert browser.complaints() == []


def test_the_slider_and_the_chosen_pe(browser, visit, stencil):
    visit(stencil / "stencil.html", "#pe=1.1&cycle=230")
    summary = browser.text("#summary")
    assert summary.startswith("Cycle 230: of 12 PEs 6 with a task, ")
    assert "PE 1.1 runs task exchange_rows" in summary
    assert browser.text("#pe-title") == "PE 1.1: pe.csl"
    assert "halo/exchange.csl" in browser.text("#now")
    assert browser.text("#source .here code") in (EXAMPLES / "halo" / "exchange.csl").read_text().split("\n")
    before = browser.js(PIXELS, "fabric")
    browser.js(
        "(document.getElementById('slider').value = 1200, "
        "document.getElementById('slider').dispatchEvent(new Event('input')))"
    )
    browser.wait("document.getElementById('summary').textContent.startsWith('Cycle 1,200:')")
    assert browser.js("document.getElementById('cycle').value") == "1200"
    assert browser.js("location.hash") == "#pe=1.1&cycle=1200"
    assert browser.js(PIXELS, "fabric") != before
    # A click in the middle of the fabric chooses the PE there.
    browser.js("(page.choose(0), 1)")
    browser.click("#fabric")
    browser.wait("document.getElementById('pe-title').textContent !== 'PE 0.0: pe.csl'")
    assert browser.text("#memory tbody").count("f32") == 3
    browser.click("#host button:last-child")
    browser.wait("document.getElementById('summary').textContent.startsWith('Cycle 3,139:')")
    assert browser.complaints() == []


def test_routes_of_a_color_are_drawn(browser, visit, stencil):
    visit(stencil / "stencil.html", "#pe=1.1&cycle=230")
    before = browser.js(PIXELS, "fabric")
    browser.choose("#color", "4")
    browser.wait("location.hash.endsWith('&color=4')")
    assert browser.js(PIXELS, "fabric") != before
    assert "Arrows: routes" in browser.text("#legend")


def test_keyboard_alone(browser, visit, stencil):
    visit(stencil / "stencil.html", "#pe=1.1&cycle=100")
    browser.keys(TAB, ENTER)  # past the head, to the chosen PE
    assert browser.js("document.activeElement.id") == "pe-panel"
    browser.js("document.activeElement.blur()")
    browser.keys(RIGHT, RIGHT, LEFT, RIGHT)
    browser.wait("page.sample === 102")
    browser.keys(END)
    browser.wait("page.sample === page.run.lastSample")
    browser.keys(HOME)
    browser.wait("page.sample === 0")
    scale = browser.js("page.grid.scale")
    browser.keys("+")
    assert browser.js("page.grid.scale") > scale
    browser.keys("-", "-")
    assert browser.js("page.grid.scale") < scale
    browser.js("document.getElementById('fabric').focus()")
    browser.keys(RIGHT, DOWN)
    browser.wait("document.getElementById('pe-title').textContent.startsWith('PE 2.2:')")
    browser.keys(UP, LEFT, LEFT, LEFT)
    browser.wait("document.getElementById('pe-title').textContent.startsWith('PE 0.1:')")
    browser.keys(" ")
    browser.wait("page.playing && page.sample > 3")
    assert browser.text("#play") == "Pause"
    browser.keys(" ")
    browser.wait("!page.playing")
    browser.js("document.getElementById('pe').select()")
    browser.keys("9.9", ENTER)
    browser.wait("document.getElementById('pe').getAttribute('aria-invalid') === 'true'")
    assert browser.text("#summary") == "There is no PE 9.9: it must be PE 0.0 to PE 3.2."
    browser.js("document.getElementById('pe').select()")
    browser.keys("3.1", ENTER)
    browser.wait("document.getElementById('pe-title').textContent.startsWith('PE 3.1:')")
    assert browser.complaints() == []


def test_it_plays_to_the_end(browser, visit, hung):
    visit(hung)
    browser.keys(HOME)
    browser.click("#play")
    browser.wait("!page.playing && page.sample === page.run.lastSample")
    assert browser.text("#play") == "Play"


def test_a_run_that_hung_shows_who_waits_for_whom(browser, visit, hung):
    """It opens where the run ended; two PEs wait in a circle, and the report says so."""
    visit(hung)
    assert "deadlock at cycle" in browser.text("#failure pre")
    assert browser.js("page.sample === page.run.lastSample")
    steps = browser.js("[...document.querySelectorAll('#chain li')].map((one) => one.textContent)")
    assert [step.split(" since")[0] for step in steps] == [
        "PE 0.0 waits for wavelets of color 1 (input queue 3)",
        "PE 1.0 waits for wavelets of color 0 (input queue 3)",
        "PE 0.0 and so round in a circle",
    ]
    assert "each waits for the other" in browser.text("#source .here code")
    browser.click("#chain li:nth-child(2) button")
    browser.wait("document.getElementById('pe-title').textContent.startsWith('PE 1.0:')")
    assert browser.complaints() == []


def test_a_sampled_page_says_so(browser, visit, stencil):
    visit(stencil / "sampled.html", "#cycle=237")
    assert browser.text("#note").startswith("This page is sampled: it has every 10th cycle.")
    assert browser.text("#summary").startswith("Cycle 230:")


def test_switch_of_colours(browser, visit, stencil):
    visit(stencil / "stencil.html", "#cycle=230")
    assert browser.text("#theme") == "Colours: as the system"
    light = browser.js(PIXELS, "fabric")
    browser.click("#theme")
    browser.click("#theme")
    assert browser.text("#theme") == "Colours: dark"
    browser.wait(f"{PIXELS} !== arguments[1]", "fabric", light)
    assert browser.js(CONTRASTS) == []
    browser.click("#theme")
    assert browser.text("#theme") == "Colours: as the system"


def test_hostile_words_stay_words(browser, visit, stencil, tmp_path):
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    text = (stencil / "stencil.html").read_text()
    about = text.split('type="application/json">')[1].split("</script>")[0]
    told = json.loads(about)
    told |= {"failure": evil, "log": [[1, f"host: {evil}"]], "programs": [evil] * len(told["programs"])}
    told["words"] = [f"{word}{evil}" for word in told["words"]]
    told["files"] = [{"shown": evil, "text": evil} for _ in told["files"]]
    path = tmp_path / "evil.html"
    path.write_text(text.replace(about, json.dumps(told).replace("<", "\\u003c")))
    visit(path, "#pe=1.1&cycle=230")
    assert browser.js("document.querySelectorAll('img, main script').length") == 0
    assert evil in browser.text("#now")
    assert evil in browser.text("#failure pre")
    assert browser.complaints() == []
