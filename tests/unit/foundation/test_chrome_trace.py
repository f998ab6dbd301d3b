"""A trace as a file: what Perfetto needs to find in it, and spans of a lane that follow or nest."""

import errno
import itertools
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.chrome_trace import Trace
from cstool.foundation.errors import TraceError
from tests.contract.refusal import refusal


def written(trace: Trace, folder: Path) -> dict[str, Any]:
    trace.write(folder / "trace.json")
    return json.loads((folder / "trace.json").read_text())


def spans(document: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return (name, ts, dur) of the spans."""
    return [(e["name"], e["ts"], e["dur"]) for e in document["traceEvents"] if e["ph"] == "X"]


def test_a_small_trace_as_a_whole(tmp_path, golden):
    trace = Trace("gpt_tiny", "modelled")
    trace.span("CSX 0", "compute", "embedding forward", 10.0, 10.000002, step=1, bytes=1024)
    trace.span("MemoryX", "updates", "embedding update", 10.000004, 10.0000055)
    trace.span("CSX 0", "compute", "step 1", 9.999999, 10.000004)
    trace.counter("MemoryX", "streamed", 10.000001, bytes=1024)
    trace.span("CSX 0", "wait", "wait", 10.0, 10.0, panel="w[0:8]")
    trace.write(tmp_path / "trace.json")
    golden("trace/small.json", (tmp_path / "trace.json").read_text())


def test_processes_and_lanes_are_in_the_order_of_their_first_use(tmp_path):
    trace = Trace("t", "measured")
    for process, lane, start_s in [("B", "y", 3.0), ("A", "x", 2.0), ("B", "x", 1.0)]:
        trace.span(process, lane, "s", start_s, start_s)
    found = {}
    for event in written(trace, tmp_path)["traceEvents"]:
        if event["ph"] == "M":
            found.setdefault((event["pid"], event.get("tid")), []).extend(event["args"].values())
    assert list(found.values()) == [["B (measured)", 0], ["A (measured)", 1], ["y", 0], ["x", 1], ["x", 2]]


def test_no_two_processes_or_lanes_share_a_number_not_even_of_two_kinds(tmp_path):
    numbers = []
    for kind in ("measured", "modelled"):
        trace = Trace("t", kind)
        for process, lane in itertools.product("AB", "xyz"):
            trace.span(process, lane, "s", 0.0, 1.0)
        events = written(trace, tmp_path)["traceEvents"]
        numbers += [*{e["pid"] for e in events}, *{e["tid"] for e in events if "tid" in e}]
    assert len(numbers) == len(set(numbers)) == 16


@st.composite
def nested(draw: st.DrawFn, start_ns: int = 0, end_ns: int = 10_000, depth: int = 3) -> list[tuple[int, int]]:
    """Spans that follow or nest, down to some depth."""
    edges = sorted(draw(st.lists(st.integers(start_ns, end_ns), max_size=6)))
    found = []
    for first, last in zip(edges[::2], edges[1::2], strict=False):
        found.append((first, last))
        if depth and last - first > 2:
            found += draw(nested(first, last, depth - 1))
    return found


@given(st.data(), nested(), st.floats(-1e5, 1e5))
def test_spans_that_follow_or_nest_come_out_as_they_went_in(tmp_path_factory, data, lane, origin_s):
    """In whatever order, and wherever the clock began; what is around others comes first."""
    trace = Trace("t", "measured")
    for start_ns, end_ns in data.draw(st.permutations(lane)):
        trace.span("a", "b", "s", origin_s + start_ns * 1e-9, origin_s + end_ns * 1e-9)
    found = [(ts, ts + dur) for _, ts, dur in spans(written(trace, tmp_path_factory.mktemp("t")))]
    first = min((start for start, _ in lane), default=0)
    expected = sorted(((start - first, end - first) for start, end in lane), key=lambda span: (span[0], -span[1]))
    assert [(round(start * 1000), round(end * 1000)) for start, end in found] == expected


@pytest.mark.parametrize(
    ("second", "settled"),
    [
        ((1.999, 3.0), [("a", 0.0, 2.0), ("b", 2.0, 1.0)]),
        ((1.0, 2.001), [("a", 0.0, 2.0), ("b", 1.0, 1.0)]),
        ((1.999, 2.0), [("a", 0.0, 2.0), ("b", 1.999, 0.001)]),
    ],
    ids=["follows", "nests", "nests already"],
)
def test_what_rounding_made_of_spans_is_mended(tmp_path, second, settled):
    trace = Trace("t", "modelled")
    trace.span("p", "l", "a", 0.0, 2e-6)
    trace.span("p", "l", "b", second[0] * 1e-6, second[1] * 1e-6)
    assert spans(written(trace, tmp_path)) == settled


def test_spans_of_a_lane_that_overlap_partly_are_refused_those_of_two_lanes_are_not(tmp_path):
    trace = Trace("t", "measured")
    trace.span("p", "l", "a", 0.0, 2e-6)
    trace.span("p", "m", "b", 1e-6, 3e-6)
    trace.write(tmp_path / "trace.json")
    trace.span("p", "l", "c", 1e-6, 3e-6)
    with refusal(ValueError, "c: spans of a lane must follow or nest, it overlaps a"):
        trace.write(tmp_path / "trace.json")


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda t: t.span("p", "l", "s", 2.0, 1.0), "s: a span must end when it starts or later, got 2.0 to 1.0"),
        (lambda t: t.span("p", "l", "s", 0.0, NAN), "s: a span must end when it starts or later, got 0.0 to nan"),
        (lambda t: t.span("p", "l", "s", 0.0, 1.0, loss=INFINITY), "s: loss must be finite, got inf"),
        (lambda t: t.counter("p", "c", INFINITY, n=1), "c: time must be finite, got inf"),
        (lambda t: t.counter("p", "c", 0.0, n=NAN), "c: n must be finite, got nan"),
        (lambda t: Trace("t", "guessed"), "kind: must be one of measured, modelled, simulated, got guessed"),
    ],
)
def test_what_no_trace_can_hold_is_refused(add, message):
    with refusal(ValueError, message):
        add(Trace("t", "measured"))


def test_a_file_that_cannot_be_written_is_named_and_what_was_there_stays(tmp_path, monkeypatch):
    path, link = tmp_path / "trace.json", tmp_path / "link"
    link.symlink_to(path)
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with refusal(TraceError, f"{path}: cannot be written: No space left on device"):
            Trace("t", "measured").write(path)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"trace.json": "old", "link": "old"}
    Trace("t", "measured").write(link)
    assert (link.is_symlink(), json.loads(path.read_text())["traceEvents"]) == (True, [])
    with refusal(TraceError, f"{tmp_path}/none/trace.json: cannot be written: No such file or directory"):
        Trace("t", "measured").write(tmp_path / "none" / "trace.json")
    with refusal(TraceError, f"{tmp_path}: cannot be written: Is not a file"):
        Trace("t", "measured").write(tmp_path)
