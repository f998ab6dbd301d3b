"""`cstool run --trace`: a file of what happened in a few steps, and the same bits as without."""

import errno
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from cstool.foundation.chrome_trace import Trace
from cstool.foundation.errors import Interrupted, NonFiniteError, TraceError
from cstool.model.ir import panels_of
from cstool.model.params import load_params
from cstool.training.machine import recorder
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.grains import Deal
from cstool.training.run.result import RunResult
from tests.contract.refusal import refusal
from tests.end_to_end.memoryx_files import IN_FILE
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import bits, compiled, gpt_params, run_file

NUM_CSX = "trainer__init__backend__cluster_config__num_csx"
GRAINS = 12
LAYERS = "transformer_decoder.layers."
VARIANTS: dict[str, dict[str, Any]] = {
    "clipped": {},
    "not clipped": {"init__precision": {}},
    "recomputed": {"init__activation_checkpointing": "always"},
    "in a file": IN_FILE,
    "rigl": {"init__sparsity": {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}}},
}


class Span(NamedTuple):
    process: str
    lane: str
    name: str
    start_us: float
    end_us: float
    arguments: dict[str, Any]


def spans_of(path: Path) -> list[Span]:
    events = json.loads(path.read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return [
        Span(processes[e["pid"]], lanes[e["tid"]], e["name"], e["ts"], e["ts"] + e["dur"], e.get("args", {}))
        for e in events
        if e["ph"] == "X"
    ]


def counters_of(path: Path, name: str) -> list[float]:
    """Return what a counter of a trace file showed, one after the other."""
    events = json.loads(path.read_text())["traceEvents"]
    return [value for e in events if e["ph"] == "C" and e["name"] == name for value in e["args"].values()]


def steps_of(path: Path) -> list[str]:
    return [span.name for span in spans_of(path) if span.name.startswith("step ")]


def traced(folder: Path, data: Path, *, lanes: int = 2, num_csx: int = 2, **changes: Any) -> RunResult:
    file = gpt_params(folder, data, **changes)
    return run_file(file, lanes=lanes, trace=folder / "trace.json", **{NUM_CSX: num_csx})


IN_LAB = [pytest.param(variant, 16, marks=pytest.mark.lab) for variant in ("clipped", "not clipped")]


@pytest.mark.parametrize(("variant", "num_csx"), [("recomputed", 1), ("in a file", 16), ("rigl", 2), *IN_LAB])
def test_every_op_of_every_grain_is_there_and_every_gradient_and_update(tmp_path, data, variant, num_csx):
    """And the bits are those of a run without a trace."""
    plain = run_file(gpt_params(tmp_path / "plain", data, **VARIANTS[variant]), lanes=2)
    result, path = traced(tmp_path, data, num_csx=num_csx, **VARIANTS[variant]), tmp_path / "trace.json"
    assert bits(result) == bits(plain)
    found = spans_of(path)
    graph = compiled(load_params(tmp_path / "params.yaml"), "train").graph
    names = Counter((s.name, s.arguments["step"]) for s in found if s.name != "wait" and "step" in s.arguments)
    for step in (2, 3, 4):
        for op in graph.ops:
            for phase in ("forward", "backward"):
                # Every weight of this model is one panel.
                assert names.pop((f"{op.name} {phase}", step)) == GRAINS, f"{op.name} {phase}"
            panels = sum(len(panels_of(graph.weights[weight])) for weight in op.weights)
            if panels:
                assert names.pop((f"{op.name} reduce", step)) == panels * (GRAINS - 1)
                assert names.pop((f"{op.name} receive", step)) == panels
            again = names.pop((f"{op.name} again", step), 0)
            assert again in ((0, GRAINS) if variant == "recomputed" and op.name.startswith(f"{LAYERS}0.") else (0,))
            assert op.name != f"{LAYERS}0.self_attn" or (again > 0) == (variant == "recomputed")
            names.pop((f"{op.name} settle", step), None)
        for weight in graph.weights:
            assert names.pop((f"{weight} update", step)) == 1
            names.pop((f"{weight} mask", step), None)
        assert names.pop((f"step {step}", step)) == 1
        assert names.pop(("commit", step), 0) == (variant == "in a file")
    assert not names
    systems = {(s.process, s.arguments["grain"]) for s in found if s.name.endswith("forward")}
    shares = Deal(GRAINS, num_csx, 1).shares(0)
    assert systems == {(f"CSX {i} (measured)", grain) for i, share in enumerate(shares) for grain in share}
    streamed = counters_of(path, "streamed")
    assert streamed == sorted(streamed)
    if variant != "rigl":  # whose panels are not equally full at every step
        assert streamed[-1] == 3 * result.streamed_bytes_per_step
    assert max(counters_of(path, "gradients in flight")) > 0
    assert max(counters_of(path, "buffers")) > 0
    assert max(counters_of(path, "memory of buffers")) <= result.memory_bytes["gradients"]


@pytest.mark.parametrize(
    ("variant", "num_csx", "lanes"), [("clipped", 1, 1), ("in a file", 1, 2), ("clipped", 3, 2), ("in a file", 3, 2)]
)
def test_spans_of_a_lane_follow_each_other_within_the_time_of_the_steps(
    tmp_path, data, monkeypatch, variant, num_csx, lanes
):
    monkeypatch.setattr(recorder, "SHORTEST_WAIT_S", 0.0)
    traced(tmp_path, data, num_csx=num_csx, lanes=lanes, **VARIANTS[variant])
    by_lane: dict[tuple[str, str], list[Span]] = {}
    for span in spans_of(tmp_path / "trace.json"):
        by_lane.setdefault((span.process, span.lane), []).append(span)
    steps = [s for s in by_lane.pop(("Appliance (measured)", "steps")) if s.name != "wait"]
    assert [s.name for s in steps] == ["step 2", "step 3", "step 4"]
    for lane, spans in by_lane.items():
        for before, after in zip(spans, spans[1:], strict=False):
            assert before.end_us <= after.start_us + 1e-3, lane
    # Lanes work within steps, and in no more time than these take.
    computing = {lane: spans for lane, spans in by_lane.items() if lane[1].endswith(": compute")}
    assert {lane for _, lane in computing} == {f"lane {i}: compute" for i in range(lanes)}
    assert {process for process, _ in computing} == {f"CSX {i} (measured)" for i in range(num_csx)}
    for spans in computing.values():
        for step in steps:
            inside = [s for s in spans if s.arguments["step"] == step.arguments["step"]]
            assert step.start_us <= inside[0].start_us <= inside[-1].end_us <= step.end_us
            assert 0 < sum(s.end_us - s.start_us for s in inside) <= step.end_us - step.start_us


def test_requests_to_the_file_are_there(tmp_path, data):
    result = traced(tmp_path, data, init__loop={"max_steps": 1}, init__checkpoint={"steps": 0}, **IN_FILE)
    written = [s.arguments["bytes"] for s in spans_of(tmp_path / "trace.json") if s.name == "write"]
    assert result.memoryx is not None
    assert 0 < sum(written) <= result.memoryx.written_bytes


@pytest.mark.parametrize(
    ("before", "last", "steps"),
    [(0, 1, "step 1"), (2, 7, "steps 4 to 6")],
)
def test_steps_2_to_4_of_the_run_are_recorded_or_all_of_a_short_one(tmp_path, data, caplog, before, last, steps):
    if before:
        run_file(gpt_params(tmp_path, data, init__loop={"max_steps": before}, init__checkpoint={"steps": before}))
    caplog.set_level("INFO", "cstool")
    traced(tmp_path, data, init__loop={"max_steps": last})
    path = tmp_path / "trace.json"
    assert f"Trace of {steps} written to {path} (measured on this host)." in caplog.messages
    assert json.loads(path.read_text())["otherData"]["title"] == f"gpt2, {steps}, 2 CSX, 2 lanes"
    numbers = [int(word) for word in steps.split() if word.isdigit()]
    assert steps_of(path) == [f"step {step}" for step in range(numbers[0], numbers[-1] + 1)]


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], object]) -> None:
    """Have something happen in the middle of a step: when its forward pass begins."""
    train_step = Appliance.train_step

    def call(self: Appliance, batch: Any, number: int, learning_rate: float) -> Any:
        if number == step:
            act()
        return train_step(self, batch, number, learning_rate)

    monkeypatch.setattr(Appliance, "train_step", call)


def fail() -> None:
    raise NonFiniteError("the loss is not finite")


@pytest.mark.parametrize(
    ("step", "act", "expected", "steps"),
    [
        (3, lambda: signal.raise_signal(signal.SIGTERM), "stopped by SIGTERM after step 3", [2, 3]),
        (3, fail, "the loss is not finite", [2, 3]),
        (1, fail, "the loss is not finite", []),
    ],
    ids=["interrupted", "fails", "fails before step 2"],
)
def test_a_run_that_ends_early_leaves_the_trace_of_what_it_did(
    tmp_path, data, monkeypatch, caplog, step, act, expected, steps
):
    caplog.set_level("INFO", "cstool")
    at_step(monkeypatch, step, act)
    with pytest.raises((Interrupted, NonFiniteError), match=f"^{expected}"):
        traced(tmp_path, data)
    path = tmp_path / "trace.json"
    if not steps:
        assert f"No trace was written to {path}: the run ended before step 2." in caplog.messages
        assert not path.exists()
        return
    assert f"Trace of steps 2 to 3 written to {path} (measured on this host)." in caplog.messages
    assert steps_of(path) == ["step 2", "step 3"]
    backward = {s.arguments["step"] for s in spans_of(path) if s.name.endswith(" backward")}
    assert backward == ({2} if act is fail else {2, 3})


@pytest.mark.parametrize("fails", [False, True])
def test_a_trace_that_cannot_be_written_ends_a_run_that_is_saved_but_what_ended_it_counts_more(
    tmp_path, data, monkeypatch, caplog, fails
):
    write = Trace.write

    def call(self: Trace, path: Path) -> None:
        def no_room(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", no_room)
            write(self, path)

    monkeypatch.setattr(Trace, "write", call)
    message = f"{tmp_path / 'trace.json'}: cannot be written: No space left on device"
    if fails:
        at_step(monkeypatch, 3, fail)
        with refusal(NonFiniteError, "the loss is not finite"):
            traced(tmp_path, data)
        assert message in caplog.messages
    else:
        with refusal(TraceError, message):
            traced(tmp_path, data)
        assert (tmp_path / "model_dir" / "checkpoint_4.mdl").is_file()
    assert not (tmp_path / "trace.json").exists()


def test_the_command_writes_it(cstool, tmp_path, data):
    path = tmp_path / "trace.json"
    outcome = cstool("run", "-p", gpt_params(tmp_path, data), "--mode", "train_and_eval", "--trace", path)
    assert outcome.code == 0
    assert "INFO:   Trace of steps 2 to 4 written to TMP/trace.json (measured on this host).\n" in outcome.stdout
    assert steps_of(path) == ["step 2", "step 3", "step 4"]


REFUSED = rows("""\
--trace TMP/trace.txt => --trace: must end in .json, got TMP/trace.txt
--trace TMP/trace => --trace: must end in .json, got TMP/trace
--trace TMP/folder.json => --trace: must be a file, got a folder: TMP/folder.json
--trace TMP/pipe.json => --trace: must be a file, got what is none: TMP/pipe.json
--trace TMP/none/trace.json =>
    --trace: must be in a folder that can be written, got TMP/none/trace.json: No such file or directory
    hint: create the folder first
--trace TMP/params.yaml/trace.json =>
    --trace: must be in a folder that can be written, got TMP/params.yaml/trace.json: Not a directory
    hint: choose another folder
--trace TMP/trace.json --mode eval => --trace: must be for training, got --mode eval
    hint: train_and_eval trains, too
--trace TMP/trace.json --compile_only => --trace: must be for a run, got compile_only\nhint: nothing runs with it
--trace TMP/trace.json --validate_only => --trace: must be for a run, got validate_only\nhint: nothing runs with it
""")


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_what_cannot_be_traced_is_refused_before_anything_runs(cstool, tmp_path, data, flags, message):
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    file = gpt_params(tmp_path, data)
    before = sorted(tmp_path.rglob("*"))
    typed = flags.replace("TMP", str(tmp_path)).split()
    assert cstool("run", "-p", file, *typed) == (2, "", error(message))
    assert sorted(tmp_path.rglob("*")) == before
    trainer = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({"trainer": [trainer, trainer]}))
    message = error("--trace: must be for one trainer, got 2 in TMP/params.yaml", "trace them apart")
    assert cstool("run", "-p", file, "--trace", tmp_path / "trace.json") == (2, "", message)
