"""The page of an appliance in a real browser: in both colour schemes, at two widths, with 0, 1 and 200 jobs."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("selenium")

from cstool.appliance.queue.job import FAILED
from cstool.appliance.queue.root import Root
from cstool.foundation.atomic_file import lock_file
from tests.browser import CONTRASTS, ENTER, ESCAPE, TAB, UNNAMED, Browser
from tests.page_server import TOKEN, Page, serving, token_file
from tests.shown_jobs import Shown, many_jobs, name_of, one_job, step_lines

NAME = name_of(1)
LEFT, DOWN = "\ue012", "\ue015"

OUTSIDE = """(() => {
  const found = [];
  const cells = "#rows td, .needs td, .stays li, .events li, .meters div, .panel-head";
  for (const cell of document.querySelectorAll(cells)) {
    const box = cell.getBoundingClientRect();
    for (const child of cell.children) {
      const inner = child.getBoundingClientRect();
      if (inner.width > 0 && (inner.right > box.right + 1 || inner.left < box.left - 1)) found.push(child.outerHTML);
    }
  }
  const texts = [...document.querySelectorAll(".gantt .grid .tick, .gantt .now text")];
  const labels = texts.map((text) => text.getBoundingClientRect());
  labels.forEach((one, at) => labels.slice(at + 1).forEach((other) => {
    if (one.left < other.right && other.left < one.right) found.push("marks of the time cover each other");
  }));
  const drawn = document.querySelector(".gantt").getBoundingClientRect();
  for (const bar of document.querySelectorAll(".gantt .bar")) {
    const box = bar.getBoundingClientRect();
    if (box.left < drawn.left - 2 || box.right > drawn.right + 2) found.push(bar.outerHTML);
  }
  return found;
})()"""
"""what sticks out of the cell or the drawing that it belongs to, or covers what is beside it"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[int, Path]:
    folders = {count: tmp_path_factory.mktemp(f"jobs_{count}") / "root" for count in (0, 1, 200)}
    Shown(folders[0]).queue.close()
    one_job(folders[1])
    many_jobs(folders[200])
    return folders


@pytest.fixture
def shown(tmp_path) -> Iterator[Shown]:
    """An appliance of one's own with one job, with a supervisor as far as anybody can see."""
    one_job(tmp_path / "root")
    with Shown(tmp_path / "root") as found:
        lock = lock_file(found.root.supervisor_lock)
        yield found
        os.close(lock)


@contextmanager
def visited(root: Root, browser: Browser, token: Path | None = None) -> Iterator[Page]:
    """The page of an appliance, without a complaint so far. It is left before its server ends, so that none follows."""
    browser.view(1280)
    browser.complaints()
    with serving(root, token) as served:
        try:
            yield served
        finally:
            browser.leave()


@pytest.fixture
def page(shown, browser) -> Iterator[Page]:
    with visited(shown.root, browser) as served:
        browser.open(served.url)
        browser.wait("document.querySelectorAll('#rows tr').length === 1")
        yield served
        assert browser.complaints() == []


@pytest.mark.parametrize("count", [0, 1, 200])
def test_looks(made, browser, count):
    """Light and dark, wide and narrow: all rows, nothing beside the page, nothing that cannot be read."""
    with Shown(made[count]) as shown, visited(shown.root, browser) as page:
        lock = lock_file(shown.root.supervisor_lock)
        running = [job.name for job in shown.queue.jobs(phases=["RUNNING"])]
        addresses = (page.url, *(f"{page.url}#{name}" for name in running[:1]))
        for width, address in product((1280, 400), addresses):
            browser.view(width)
            browser.open(address)
            browser.wait("document.querySelectorAll('#rows tr').length === arguments[0]", count)
            browser.wait("document.querySelector('.gantt .now line') !== null")
            if address != page.url:
                browser.wait("document.querySelector('.curve .line') !== null")
            assert browser.text("#state") == "runs"
            for dark in (False, True):
                browser.view(width, dark=dark)
                assert browser.js("document.documentElement.scrollWidth") == width
                assert browser.js("document.querySelector('#detail').scrollWidth") <= width
                assert browser.js(OUTSIDE) == []
                assert browser.js(CONTRASTS) == []
                shade = browser.js("getComputedStyle(document.body).backgroundColor")
                assert (sum(json.loads(shade.replace("rgb(", "[").replace(")", "]"))) < 128) is dark
        assert browser.complaints() == []
        os.close(lock)


def test_job_is_shown(page, browser):
    browser.click("#rows .phase")
    browser.wait("document.querySelector('#detail-title')?.textContent === arguments[0]", NAME)
    browser.wait("document.querySelector('.curve .line') !== null")
    assert browser.js("location.hash") == f"#{NAME}"
    assert browser.text(".readout").startswith("step 760: loss 2.69")
    assert "Step=760, Loss=2.69" in browser.text("#log")
    assert browser.text("#detail .stays").count("QUEUED") == 2
    assert "stated" in browser.text(".needs")
    bar = "document.querySelector('#detail progress')"
    assert browser.js(f"{bar}.value / {bar}.max") == 0.38
    browser.click("#tab-err")
    browser.wait("document.querySelector('#log').textContent.startsWith('warning: Input starvation')")
    browser.click("#detail .close")
    browser.wait("document.querySelector('#detail').hidden")
    assert browser.js("location.hash") == ""


def test_it_lives(page, shown, browser):
    """What happens is seen without a reload: the log, the losses, the phase, a job that comes."""
    browser.open(f"{page.url}#{NAME}")
    browser.wait("document.querySelector('.readout')?.textContent.startsWith('step 760:')")
    browser.js("document.querySelector('#rows tr').isTheSame = true")
    shown.log(NAME, step_lines(761, 764))
    browser.wait("document.querySelector('.readout').textContent.startsWith('step 764:')")
    assert "Step=764" in browser.text("#log")
    other = shown.submit(2, labels={"came": "later"})
    browser.wait("document.querySelectorAll('#rows tr').length === 2")
    assert "came=later" in browser.text(f"#rows tr[data-job={other}]")
    shown.end(NAME, FAILED, "took more than its memory of 2 GB")
    browser.wait("document.querySelector('#detail .pill').textContent === 'FAILED'")
    browser.wait("document.querySelector('.bar.failed') !== null")
    assert browser.text(f"#rows tr[data-job={NAME}] .pill") == "FAILED"
    assert browser.js("document.querySelector('#rows tr:last-child').isTheSame") is True


def test_keyboard_alone(page, browser):
    browser.keys(TAB, ENTER)  # the link that leads past the head
    browser.wait("document.activeElement.id === 'search'")
    browser.keys(TAB, TAB, TAB)
    assert browser.js("document.activeElement.closest('tr')?.dataset.job") == NAME
    browser.keys(ENTER)
    browser.wait("document.activeElement.id === 'detail-title'")
    browser.wait("document.querySelector('.curve .line') !== null")
    browser.js("document.querySelector('#tab-out').focus()")
    browser.keys(LEFT)
    browser.wait("document.activeElement.id === 'tab-err'")
    browser.keys(ESCAPE)
    browser.wait("document.activeElement.closest('tr') !== null")
    browser.js("document.querySelector('.bar[tabindex=\"0\"]').focus()")
    browser.keys(DOWN)
    assert browser.js("document.activeElement.classList.contains('running')")
    browser.keys(ENTER)
    browser.wait("document.activeElement.id === 'detail-title'")


def test_narrow_job_covers_the_rest(page, browser):
    """Keys stay within the job while it covers the page, and return to its row."""
    browser.view(400)
    browser.click("#rows a")
    browser.wait("document.querySelector('.curve .line') !== null")
    focus = "document.activeElement"
    for _ in range(8):
        browser.keys(TAB)
        assert browser.js(f"{focus} === document.body || !!{focus}.closest('#detail, .skip')")
    browser.keys(ESCAPE)
    browser.wait(f"{focus}.closest('tr')?.dataset.job === arguments[0]", NAME)
    browser.click("#rows a")
    browser.view(1280)
    browser.wait("!document.querySelector('#queue').inert")


def test_everything_has_a_name(page, browser):
    """What a screen reader would say of each control is not empty."""
    browser.open(f"{page.url}#{NAME}")
    browser.wait("document.querySelector('.curve .line') !== null")
    assert browser.js(UNNAMED) == []
    assert browser.js("document.documentElement.lang") == "en"
    heads = "[...document.querySelectorAll('h1, h2, h3')].map((one) => one.tagName).join(' ')"
    assert browser.js(heads).startswith("H1 H2 H2 H2 H3")


def test_200_jobs_and_filters(made, browser):
    with Shown(made[200]) as shown, visited(shown.root, browser) as page:
        browser.open(page.url)
        browser.wait("document.querySelectorAll('#rows tr').length === 200")
        names = browser.js("[...document.querySelectorAll('#rows tr')].map((row) => row.dataset.job)")
        assert sorted(names) == sorted(job.name for job in shown.queue.jobs())
        assert browser.js("document.querySelectorAll('.bar.running').length") == 2
        # Nobody supervises: nothing is expected to start, and what runs is expected to go on.
        assert browser.text("#state") == "no supervisor runs"
        assert browser.js("document.querySelectorAll('.bar.expected').length") == 2
        assert browser.text("#count") == "200"
        browser.choose("#phase", "active")
        browser.wait("document.querySelectorAll('#rows tr').length === 50")
        browser.choose("#user", "carol")
        carols = shown.queue.jobs(active=True, user="carol")
        browser.wait("document.querySelector('#count').textContent === arguments[0]", f"{len(carols)} of 200")
        browser.click("#search")
        browser.keys("team=nlp")
        labelled = [job for job in carols if job.labels.get("team") == "nlp"]
        assert browser.js("document.querySelectorAll('#rows tr').length") == len(labelled) > 0
        browser.keys("xyz")
        assert browser.text("#empty") == "No job is like that."


def test_switch_of_colours(page, browser):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browser.js(ground)
    browser.click("#theme")
    assert (browser.text("#theme"), browser.js(ground)) == ("Colours: light", light)
    browser.click("#theme")
    dark = browser.js(ground)
    assert browser.text("#theme") == "Colours: dark"
    assert dark != light
    browser.open(page.url)
    browser.wait("document.querySelectorAll('#rows tr').length === 1")
    assert browser.js(ground) == dark
    browser.click("#theme")
    assert (browser.text("#theme"), browser.js(ground)) == ("Colours: as the system", light)


def test_rests_while_it_is_hidden(page, shown, browser):
    counts = "(...all) => (window.asked += 1, oldFetch(...all))"
    browser.js(f"(window.asked = 0, window.oldFetch = fetch, window.fetch = {counts})")
    browser.wait("window.asked > 1")
    hide = "Object.defineProperty(document, 'visibilityState', {{configurable: true, value: '{}'}})"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    ticks = "window.ticks = 0, window.asked = 0, setInterval(() => ticks++, 500)"
    browser.js(f"({hide.format('hidden')}, {tell}, {ticks})")
    browser.wait("window.ticks >= 3")
    assert browser.js("window.asked") <= 1  # one may have been under way
    shown.queue.label(NAME, {"seen": "later"})
    browser.js(f"({hide.format('visible')}, {tell})")
    browser.wait("document.querySelector('#rows .labels').textContent.includes('seen=later')")


def test_somebody_elses_log(page, browser, monkeypatch):
    """Who may not read the files sees the job, and is told why there is no more."""
    monkeypatch.setattr("cstool.appliance.page.viewer.user_of_peer", lambda client, server: 4000001)
    browser.open(f"{page.url}#{NAME}")
    browser.wait("document.querySelector('#detail .empty:not([hidden])') !== null")
    assert browser.text("#detail .empty").startswith("Its loss and its log are for its owner")
    assert browser.text("#log") == ""
    assert browser.js("document.querySelector('.curve').getClientRects().length") == 0
    assert "stated" in browser.text(".needs")


def test_token(shown, browser, tmp_path):
    name = shown.submit(3)
    with visited(shown.root, browser, token_file(tmp_path)) as page:
        browser.open(f"{page.url}#{name}")
        browser.wait("document.querySelector('#detail .events li') !== null")
        assert browser.js("document.querySelectorAll('#detail .changes button').length") == 0
        browser.click("#token")
        browser.keys("not the token at all", ENTER)
        browser.wait("document.querySelector('#dialog p')?.textContent === 'This is not the token.'")
        browser.click("#dialog button")
        browser.click("#token")
        browser.keys(TOKEN, ENTER)
        browser.wait("document.querySelectorAll('#detail .changes button').length === 2")
        browser.click("#detail .changes input")
        browser.keys("team=page", ENTER)
        browser.wait("document.querySelector('#detail .chips').textContent === 'team=page'")
        assert shown.queue.job(name).labels == {"team": "page"}
        browser.keys("team=" + "x" * 70, ENTER)
        browser.wait("document.querySelector('#dialog').open")
        assert browser.text("#dialog p") == "label team: its value must have at most 63 characters, it has 70"
        browser.click("#dialog button")
        browser.click("#detail .danger")
        browser.wait("document.querySelector('#dialog').open")
        browser.click("#dialog button.danger")
        browser.wait("document.querySelector('#detail .pill').textContent === 'CANCELLED'")
        assert shown.queue.job(name).phase == "CANCELLED"


def test_server_that_is_gone(shown, browser):
    browser.view(1280)
    with serving(shown.root) as page:
        browser.open(page.url)
        browser.wait("document.querySelectorAll('#rows tr').length === 1")
        assert browser.js("document.querySelector('#alert').hidden") is True
    browser.wait("document.querySelector('#alert').textContent.startsWith('The server of this page does not answer')")
    assert browser.js("document.querySelectorAll('#rows tr').length") == 1
    browser.leave()


def test_job_that_is_not_there(page, browser):
    browser.open(f"{page.url}#{name_of(12345)}")
    browser.wait("location.hash === ''")
    browser.wait("document.querySelector('#detail').hidden")
    assert all("404" in complaint for complaint in browser.complaints())


def test_hostile_words_stay_words(page, shown, browser):
    """Labels, notes and logs may say anything: nothing of it becomes a part of the page."""
    evil = "<img src=x onerror=alert(1)>"
    name = shown.submit(4, note=evil, model=evil, labels={"a": evil})
    shutil.copytree(shown.root.job(NAME).path, shown.root.job(name).path)
    shown.log(name, f"\n{evil}<script>alert(2)</script>\x1b[2J\n")
    browser.open(f"{page.url}#{name}")
    browser.wait("document.querySelector('#log')?.textContent.includes('alert(2)')")
    assert browser.js("document.querySelectorAll('main img, main script').length") == 0
    assert evil in browser.text("#rows")
    assert "\\x1b[2J" in browser.text("#log")
