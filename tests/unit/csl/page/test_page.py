"""The HTML of a recorded run: what it says, what it leaves out, and what it never lets through."""

import base64
import hashlib
import html
import json
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from cstool.csl.fabric.trace import Recorder, read_trace
from cstool.csl.page import page as page_module
from cstool.csl.page.page import fitting_sampling, page_of
from tests.unit.csl.fabric.waits import line

EVIL = "</script><img src=x onerror=alert(1)>\u2028\u202e&amp;$title"


@pytest.fixture
def trace(tmp_path):
    """Two PEs: a task on the first, wavelets between them."""
    recorder = Recorder(line(2))
    recorder(2, 0, "task", "main")
    recorder.line(3, 0, "pe.csl:4:3")
    recorder.line(4, 0, "/home/somebody/programs/halo/exchange.csl:9:3")
    for time in range(10, 400):
        recorder(time, 0, "hop", 2, 3, time, False)
    recorder(410, 0, "task_end", "main")
    recorder.context = replace(
        recorder.context, cycles=420, sources={"pe.csl": "one\ntwo\n"}, log=((1, "host: launch run()"),)
    )
    recorder.save(tmp_path / "t.trace")
    return read_trace(tmp_path / "t.trace")


def about(text: str) -> dict:
    return json.loads(re.search(r'<script id="about" type="application/json">(.*?)</script>', text, re.S)[1])


def data(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(re.search(r'<script id="data" type="text/plain">(.*?)</script>', text)[1]))


def test_a_page_has_its_run_and_asks_no_network(trace):
    text = page_of(trace, "sums/t.trace")
    told = about(text)
    assert (told["width"], told["height"], told["end"], told["every"], told["samples"]) == (2, 1, 420, 1, 421)
    assert told["log"] == [[1, "host: launch run()"]]
    assert told["time"] == "the vendor's simulator"
    # Of a path from the root the last two parts are shown: pages go to others.
    assert told["files"] == [
        {"shown": "pe.csl", "text": "one\ntwo\n"},
        {"shown": "halo/exchange.csl", "text": None},
    ]
    assert "/home" not in text
    assert told["places"] == [None, [0, 4], [1, 9]]
    tables = dict(told["tables"])
    assert tables["hops"] == [1, 390, 3, 1]
    assert tables["tasks"] == [1, 1, 1, 3]
    assert re.findall(r"(?:src|href)=\"(?!data:,|#)[^\"]*\"|https?://", text) == []


def test_the_script_is_the_only_one_that_runs(trace):
    text = page_of(trace, "t")
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    script = re.search(r"<script>(.*?)</script>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def test_hostile_names_end_no_element(trace):
    """Names, source, log and errors may say anything: none of it becomes a part of the page."""
    context = replace(trace.context, sources={EVIL: EVIL}, log=((1, EVIL),), failure=EVIL, streams={EVIL: 3})
    spoilt = replace(trace, words=(EVIL, *trace.words[1:]), programs=(EVIL,), context=context)
    text = page_of(spoilt, EVIL)
    plain = page_of(trace, "t")
    assert text.count("</script>") == plain.count("</script>")
    assert "<img" not in text
    assert about(text)["files"][-1] == {"shown": EVIL, "text": EVIL}
    title = re.search(r"<title>(.*?)</title>", text)[1]
    assert html.unescape(title) == "</script><img src=x onerror=alert(1)>\\u2028\\u202e&amp;$title"


def test_a_sampled_page_says_so(trace):
    told = about(page_of(trace, "t", every=22))
    assert (told["every"], told["samples"]) == (22, 21)
    assert told["notes"] == [
        "This page is sampled: it has every 22nd cycle. Counts of wavelets and of lines are of all cycles; what begins "
        "and ends between two samples is not shown."
    ]
    assert about(page_of(replace(trace, is_cut=True), "t"))["notes"] == [
        "More happened than was recorded: the trace is cut."
    ]


@pytest.mark.parametrize(("number", "text"), [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (1021, "1,021st")])
def test_ordinals(number, text):
    assert page_module._ordinal(number) == text


def test_a_page_is_sampled_until_its_events_fit(trace, monkeypatch):
    assert fitting_sampling(trace) == 1
    monkeypatch.setattr(page_module, "FEWEST", 10)
    monkeypatch.setattr(page_module, "FULL", 1)
    every = fitting_sampling(trace)
    assert every > 1
    assert 420 // every <= 10


def test_variables_are_at_the_end_of_the_data(trace, monkeypatch):
    memory = np.arange(200, dtype=np.uint8)
    full = replace(trace, context=replace(trace.context, memory=memory))
    assert data(page_of(full, "t")).endswith(memory.tobytes())
    monkeypatch.setattr(page_module, "MEMORY", 100)
    text = page_of(full, "t")
    assert not data(text).endswith(memory.tobytes())
    assert about(text)["memory_left_out"] == "left out: more than 100 bytes in all"
