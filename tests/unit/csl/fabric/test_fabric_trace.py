"""The trace of a fabric: what is recorded is what is read, and what a PE did and a link carried is told by it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.csl.fabric.arch import EAST, RAMP
from cstool.csl.fabric.trace import Place, Recorder, read_trace
from cstool.csl.fabric.trace_view import Hop, Run, Span, chrome_trace, hops, runs, spans
from cstool.foundation.errors import TraceError
from tests.contract.refusal import refusal
from tests.examples import examples
from tests.unit.csl.fabric.waits import line


def recorded(tmp_path, *events, most=1000):
    recorder = Recorder(line(2), most)
    for event in events:
        recorder(*event)
    recorder.save(tmp_path / "trace.npz")
    return read_trace(tmp_path / "trace.npz")


DONE = (
    (100, 0, "task", "main"),
    (104, 0, "op", "main", "fmovs"),
    (104, 0, "op", "microthread 2", "fadds"),
    (105, 0, "hop", EAST, 3, 0x3F800000, False),
    (106, 0, "hop", EAST, 4, 7, True),
    (107, 0, "hop", EAST, 3, 1, False),
    (108, 0, "op_end", "main", "fmovs"),
    (110, 0, "task_end", "main"),
    (106, 1, "hop", RAMP, 3, 0x3F800000, False),
    (140, 0, "hop", EAST, 3, 2, False),
)


def test_what_a_pe_did(tmp_path):
    trace = recorded(tmp_path, *DONE)
    assert spans(trace, 0) == [
        Span(100, 110, "main", "task main"),
        Span(104, 140, "microthread 2", "@fadds", is_over=False),
        Span(104, 108, "main", "@fmovs"),
    ]
    assert spans(trace, 1) == []
    assert (trace.width, trace.height, trace.arch, trace.programs, trace.is_cut) == (2, 1, "wse2", ("pe.csl",), False)


def test_what_a_link_carried_and_in_which_runs(tmp_path):
    trace = recorded(tmp_path, *DONE)
    assert hops(trace, 0, EAST)[:2] == [Hop(105, 3, 0x3F800000, False), Hop(106, 4, 7, True)]
    assert runs(trace, 0, EAST) == [
        Run(105, 107, EAST, 3, 2, 0),
        Run(106, 106, EAST, 4, 1, 1),
        Run(140, 140, EAST, 3, 1, 0),
    ]
    assert runs(trace, 1, RAMP) == [Run(106, 106, RAMP, 3, 1, 0)]


def test_what_is_too_much_is_not_recorded_and_the_file_says_so(tmp_path):
    assert not recorded(tmp_path, *DONE, most=len(DONE)).is_cut
    trace = recorded(tmp_path, *DONE, most=len(DONE) - 1)
    assert (trace.is_cut, trace.end) == (True, 107 + 3)


def test_perfetto_gets_cycles_as_microseconds(tmp_path):
    trace = recorded(tmp_path, *DONE)

    def written(*only):
        chrome_trace(trace, "t", *only).write(tmp_path / "t.json")
        return json.loads((tmp_path / "t.json").read_text())["traceEvents"]

    events = written()
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["PE 0.0 pe.csl (simulated)", "PE 1.0 pe.csl (simulated)"]
    timed = [(event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X"]
    assert timed == [
        ("task main", 0, 10),
        ("@fmovs", 4, 4),
        ("@fadds", 4, 36),
        ("2 wavelets", 5, 3),
        ("1 wavelet", 6, 1),
        ("1 wavelet", 6, 1),
        ("1 wavelet", 40, 1),
    ]
    assert {event["name"] for event in written([Place(1, 0)]) if event["ph"] == "X"} == {"1 wavelet"}


@given(
    st.lists(
        st.tuples(st.integers(0, 2**63), st.integers(0, 1), st.integers(0, 4), st.integers(0, 23)).map(
            lambda event: (event[0], event[1], "hop", event[2], event[3], 2**32 - 1, True)
        ),
        max_size=20,
    )
)
@examples(30)
def test_every_hop_is_read_back(tmp_path_factory, events):
    trace = recorded(tmp_path_factory.mktemp("trace"), *events)
    for pe in (0, 1):
        for port in range(5):
            told = [Hop(e[0], e[4], e[5], e[6]) for e in events if (e[1], e[3]) == (pe, port)]
            assert hops(trace, pe, port) == told


@pytest.mark.parametrize("content", [b"", b"no trace", b"PK\x03\x04 cut", b"{}"])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    hint = "`cstool fabric run DIR --trace FILE` records one"
    with refusal(TraceError, f"{path}: must be a trace of a fabric, it is not, or is damaged", hint):
        read_trace(path)


def test_a_damaged_file_is_refused(tmp_path):
    recorded(tmp_path, *DONE)
    path = tmp_path / "trace.npz"
    whole = path.read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(TraceError):
            read_trace(path)


def test_where_nothing_can_be_read_or_written_is_said(tmp_path):
    with refusal(TraceError, f"{tmp_path}/none.npz: cannot be read: No such file or directory"):
        read_trace(tmp_path / "none.npz")
    with refusal(TraceError, f"{tmp_path}/no/t.npz: cannot be written: No such file or directory"):
        Recorder(line(2)).save(tmp_path / "no" / "t.npz")
