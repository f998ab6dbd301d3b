"""What threads take down of the steps that are recorded, and what they leave out."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cstool.model.ir import Panel
from cstool.training.machine.recorder import NOTHING, SHORTEST_WAIT_S, LaneTape, Recorder, Tape
from cstool.training.run.report.measured_trace import trace_of

PANEL = Panel("w", 1, 0, 3, (3, 2))


@pytest.mark.parametrize(
    ("start", "last", "window"),
    [(0, 1, (1, 1)), (0, 3, (1, 3)), (0, 4, (2, 4)), (0, 900, (2, 4)), (7, 9, (8, 9)), (7, 11, (9, 11))],
)
def test_steps_2_to_4_of_a_run_are_recorded_or_all_of_a_short_one(start, last, window):
    recorder = Recorder(start, last)
    assert (recorder.first, recorder.last) == window
    assert [recorder.covers(step) for step in (window[0] - 1, *window, window[1] + 1)] == [False, True, True, False]


def test_batches_are_recorded_from_the_first_step_of_the_window_on_of_a_short_run_before_it():
    recorder = Recorder(0, 9)
    assert recorder.batch(0) is NOTHING
    with recorder.step_span(2), recorder.batch(1):
        pass
    recorder.is_on = False
    assert recorder.batch(2) is NOTHING
    assert names(recorder) == ["step 2", "read"]
    recorder = Recorder(0, 3)
    with recorder.batch(0):
        pass
    assert names(recorder) == ["read"]


def test_updates_and_commits_count_by_their_step_even_after_the_window():
    recorder = Recorder(0, 9)
    with recorder.step_span(2):
        pass
    recorder.is_on = False
    for step in (1, 4, 5):
        with (
            recorder.in_memoryx(step, "updates", "w update", panel=PANEL.index),
            recorder.in_memoryx(step, "commits", "commit"),
        ):
            recorder.request("write", 4096, time.perf_counter())
    recorder.request("read", 4096, time.perf_counter())
    spans = recorder.here().spans
    assert [(span.kind, span.name) for span in spans] == [
        ("reads and writes", "write"),
        ("commits", "commit"),
        ("updates", "w update"),
    ]
    assert [span.arguments for span in spans] == [{"bytes": 4096}, {"step": 4}, {"step": 4, "panel": 1}]


def test_what_fails_is_taken_down_as_far_as_it_came():
    tape = Tape("lane 0")
    with pytest.raises(ZeroDivisionError), tape.span("CSX 0", "compute", "op forward", {"grain": 3}):
        raise ZeroDivisionError
    assert [(span.name, span.arguments) for span in tape.spans] == [("op forward", {"grain": 3})]
    assert tape.depth == 0


def test_a_wait_is_taken_down_for_every_system_of_the_lane_unless_it_is_short():
    recorder = Recorder(0, 3)
    tape = recorder.lane(1, [2, 3])
    tape.keep(lambda lane: time.sleep(2 * SHORTEST_WAIT_S))
    assert [(span.process, span.name) for span in tape.spans] == [("CSX 2", "wait"), ("CSX 3", "wait")]
    tape.wait("MemoryX", "updates", time.perf_counter(), {})
    assert len(tape.spans) == 2


def test_every_thread_has_a_tape_of_its_own_and_a_lane_that_of_the_lane():
    recorder, found = Recorder(0, 3), []

    def work(tape: LaneTape | None) -> None:
        if tape is not None:
            recorder.use(tape)
        found.append(recorder.here().thread)

    for name, tape in [("memoryx_1", None), ("lane_0", recorder.lane(5, [0]))]:
        thread = threading.Thread(target=work, args=(tape,), name=name)
        thread.start()
        thread.join()
    assert found == ["memoryx 1", "lane 5"]


def test_lanes_of_a_trace_are_in_the_order_of_the_machine(tmp_path):
    recorder = Recorder(0, 3)
    for process, kind, thread in [
        ("CSX 10", "compute", "lane 0"),
        ("CSX 9", "compute", "lane 10"),
        ("CSX 9", "compute", "lane 9"),
        ("MemoryX", "reads and writes", "lane 0"),
        ("MemoryX", "updates", "memoryx 0"),
        ("SwarmX", "reduce", "lane 0"),
        ("Appliance", "steps", ""),
        ("Input workers", "batches", "input-worker"),
    ]:
        tape = recorder._new(Tape(thread))
        with tape.span(process, kind, "s", {}):
            pass
    found = shown(recorder, tmp_path)
    assert [(process, lane) for process, lanes in found.items() for lane in lanes] == [
        ("Appliance (measured)", "steps"),
        ("Input workers (measured)", "input-worker: batches"),
        ("MemoryX (measured)", "memoryx 0: updates"),
        ("MemoryX (measured)", "lane 0: reads and writes"),
        ("SwarmX (measured)", "lane 0: reduce"),
        ("CSX 9 (measured)", "lane 9: compute"),
        ("CSX 9 (measured)", "lane 10: compute"),
        ("CSX 10 (measured)", "lane 0: compute"),
    ]


def names(recorder: Recorder) -> list[str]:
    return [span.name for tape in recorder.tapes for span in tape.spans]


def shown(recorder: Recorder, folder: Path) -> dict[str, list[str]]:
    trace_of(recorder, "t").write(folder / "t.json")
    events: list[dict[str, Any]] = json.loads((folder / "t.json").read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    lanes: dict[str, list[str]] = {process: [] for process in processes.values()}
    for event in events:
        if event["name"] == "thread_name":
            lanes[processes[event["pid"]]].append(event["args"]["name"])
    return lanes
