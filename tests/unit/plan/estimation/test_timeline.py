"""The modelled timeline: what is on it, and that nothing overlaps on a lane."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cstool.plan.estimation import Estimate
from cstool.plan.estimation import timeline as module
from cstool.plan.estimation.timeline import draw_timeline
from cstool.plan.timing.resources import STRAGGLERS
from tests.unit.plan.estimation.requests import estimator, gpt

Spans = dict[str, list[dict[str, Any]]]


def events(found: Estimate, folder: Path) -> tuple[dict[str, Any], Spans]:
    """Return what else is in the file, and its spans and counters by "process: lane"."""
    path = folder / "trace.json"
    draw_timeline(found).write(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    processes = {e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    spans: Spans = defaultdict(list)
    for event in (event for event in document["traceEvents"] if event["ph"] in "XC"):
        lane = lanes[event["pid"], event["tid"]] if event["ph"] == "X" else event["name"]
        spans[f"{processes[event['pid']]}: {lane}"].append(event)
    return document["otherData"], spans


def test_a_step_on_systems_that_share_a_tree(tmp_path):
    found = estimator(gpt(batch_size=64, num_hidden_layers=2)).at(16)
    other, spans = events(found, tmp_path)
    assert other["title"] == "gpt3 on 16 x cs2, weight streaming"
    assert other["kind"] == "modelled"
    system = "the slowest CSX of 16 (modelled)"
    lanes = [f"SwarmX (modelled): {way}, stage {n}" for way in ("broadcast", "reduce") for n in (1, 2)]
    lanes += [f"MemoryX (modelled): {what}" for what in ("memory", "processors")]
    counters = ("CSX ingress [GB/s]", "CSX egress [GB/s]", "SRAM of the fullest PE [bytes]")
    for lane in (*lanes, *(f"{system}: {what}" for what in ("ingress", "compute", "egress", *counters))):
        assert spans[lane], lane
    compute = spans[f"{system}: compute"]
    names = [event["name"] for event in compute]
    assert [name.rpartition(" ")[2] for name in names].count("forward") == 2 + 2 * 5
    # It is one step: from the end of the one before to its own.
    end_us = max(event["ts"] + event["dur"] for event in compute)
    assert end_us == pytest.approx(1e6 * found.step_s, rel=1e-3)
    # Each stage is a hop behind the one before.
    first, second = (spans[f"SwarmX (modelled): broadcast, stage {n}"][3]["ts"] for n in (1, 2))
    assert second - first == pytest.approx(5.0, abs=0.01)
    up = [spans[f"SwarmX (modelled): reduce, stage {n}"][-1]["ts"] for n in (1, 2)]
    assert up[0] - up[1] == pytest.approx(5.0, abs=0.01)


def test_repetitions_of_two_segments_have_names_of_their_own(tmp_path):
    """Gemma 2 with windows in every other layer, and an odd number of layers."""
    shape = {"name": "gemma2", "num_hidden_layers": 3, "attention_sliding_window_length": 64}
    found = estimator(gpt(sliding_window_every_other_decoder_layer=True, **shape)).at(1)
    assert len(found.artifact.graph.segments) > 3
    _, spans = events(found, tmp_path)
    forward = [event["name"] for event in spans["CSX (modelled): compute"] if event["name"].endswith(" forward")]
    assert len(set(forward)) == len(forward)
    assert not any("{" in name for name in forward)


def test_nothing_overlaps_on_a_lane_and_links_carry_no_more_than_they_can(tmp_path):
    for mode in ("weight_streaming", "pipelined"):
        found = estimator(gpt(num_hidden_layers=2), execution_mode=mode).at(1)
        _, spans = events(found, tmp_path)
        for lane, found_events in spans.items():
            if "dur" not in found_events[0]:
                assert all(0 <= event["args"].get("rate", 0) <= 150 * 1.001 for event in found_events)
                continue
            ordered = sorted(found_events, key=lambda event: event["ts"])
            assert all(a["ts"] + a["dur"] <= b["ts"] + 0.002 for a, b in pairwise(ordered)), lane


def test_of_many_micro_batches_the_first_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_TASKS", 1)
    found = estimator(gpt(batch_size=4096)).at(1)
    assert (count := found.artifact.streaming.micro_batches) > 1
    assert events(found, tmp_path)[0]["title"].endswith(f", 1 of {count} micro-batches")


def test_pipelined_samples_meet_in_every_stage(tmp_path):
    params = gpt(num_hidden_layers=2, hidden_size=256)
    found = estimator(params, execution_mode="pipelined").at(1)
    plan = found.artifact.pipelined
    other, spans = events(found, tmp_path)
    assert "pipelined" in other["title"]
    assert len([lane for lane in spans if "CSX, one replica" in lane]) == len(plan.stages) + 1
    assert "SwarmX (modelled): gradients of all systems" not in spans
    four = estimator(params, execution_mode="pipelined", batch_per_csx=64).at(4)
    _, others = events(four, tmp_path)
    (exchange,) = others["SwarmX (modelled): gradients of all systems"]
    (waiting,) = others["CSX, one replica (modelled): waiting"]
    assert waiting["dur"] == pytest.approx(1e6 * four.step.spent_s[STRAGGLERS], abs=1e-3)
    assert waiting["dur"] + exchange["dur"] == pytest.approx(1e6 * (four.step_s - found.step_s), rel=1e-3)
    first, last = (spans[f"CSX, one replica (modelled): {plan.stages[n].name}"] for n in (0, -1))
    # The last stage turns round at once, the first has many samples in flight.
    assert [event["name"] for event in last[:2]] == ["sample 0 forward", "sample 0 backward"]
    assert [event["name"] for event in first[:3]] == [f"sample {n} forward" for n in range(3)]
