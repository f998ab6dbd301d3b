"""What is different between two artifacts, as whole texts."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cstool.model import ir
from cstool.model.ir import Artifact, Layout, Region, SramEntry, plain_data
from cstool.model.ir._plain_data import from_plain
from cstool.plan.compiler.difference import Change, differences
from tests.models import decoder
from tests.unit.model.ir.artifacts import SRAM, SYSTEM, pipelined_artifact, plan, streaming_artifact

STREAMING = streaming_artifact()
PIPELINED = pipelined_artifact()
ARTIFACTS = {"pipelined": PIPELINED, "streaming": STREAMING}


def text(a: Artifact, b: Artifact) -> str:
    return "".join(f"{change}\n" for change in differences(a, b))


def test_equal_artifacts_have_no_differences_another_mode_has_many(golden):
    sources = MappingProxyType({"clock_hz": ("X", "someone")})
    for artifact in ARTIFACTS.values():
        assert differences(artifact, artifact) == []
        assert differences(artifact, replace(artifact, system=replace(SYSTEM, sources=sources))) == []
    graph = decoder(layers=1)
    golden("compiler/difference_mode.txt", text(streaming_artifact(graph), pipelined_artifact(graph)))


def test_another_plan_in_weight_streaming(golden):
    streaming = STREAMING.streaming
    segment, *others = streaming.kernels
    faster = replace(segment[0], cycles=replace(segment[0].cycles, recomputes=0), sram_bytes=1)
    changed = replace(
        plan(
            STREAMING,
            layout=Layout(1, 40, 30, 2, parts=2),
            kernels=((faster, *segment[1:]), *others),
            sram=(*SRAM[:-1], SramEntry("activations", 8_000, "20 tokens x 400 B"), SramEntry("sums", 40, "")),
            colors=MappingProxyType({"weights": 0, "deltas": 4}),
            prefetch_bytes=8_192,
            micro_batches=1,
            streamed_bytes=500_000,
        ),
        inputs=MappingProxyType({"num_csx": "2", "model.name": "gpt3", "graph": "0123456789abcdef"}),
        micro_batch_size=8,
        step_cycles=1_500_000,
        recompute=ir.Recompute(1, 3),
        sram_used_bytes=STREAMING.sram_used_bytes + 4_040,
        alternatives=(*STREAMING.alternatives, ir.Alternative(ir.ExecutionMode.PIPELINED, 70, "asked for")),
    )
    golden("compiler/difference_streaming.txt", text(STREAMING, changed))


def test_stages_that_are_moved_and_resized(golden):
    stages = list(PIPELINED.pipelined.stages)
    stages[0] = replace(stages[0], region=replace(stages[0].region, height=14))
    stages[1] = replace(stages[1], region=Region(30, 0, 4, 15), in_flight=9, is_recomputed=True)
    stages[2] = replace(stages[2], region=replace(stages[2].region, x=20), orientation="inputs over rows")
    stages[-1] = replace(stages[-1], name="another")
    routes = list(PIPELINED.pipelined.routes)
    routes[1] = replace(routes[1], color=9)
    changed = plan(
        PIPELINED,
        stages=tuple(stages),
        routes=(*routes[:3], *routes[4:]),
        replicas=(1, 1),
        wire_pes=99,
        kernel_colors=MappingProxyType({"deltas": 8}),
    )
    changed = replace(changed, active_pes=2 * 15 * len(stages) + 44)
    golden("compiler/difference_pipelined.txt", text(PIPELINED, changed))


def test_what_comes_first_matters_most_and_numbers_are_in_words_that_fit_them():
    inputs = MappingProxyType({**STREAMING.inputs, "num_csx": "4"})
    changed = replace(plan(STREAMING, streamed_bytes=1), inputs=inputs, step_cycles=1, sram_used_bytes=2)
    assert [change.what for change in differences(STREAMING, changed)] == [
        "step, modelled",
        "SRAM of the fullest PE",
        "weights streamed into each CSX per step",
        "input num_csx",
    ]
    one = replace(STREAMING, micro_batch_size=1, step_cycles=850_000)
    slow = replace(STREAMING, micro_batch_size=2, step_cycles=6 * 10**12)
    assert text(one, slow) == (
        "micro-batch: 1 sample -> 2 samples\n"
        "step, modelled: 850,000 cycles, 1 ms -> 6,000,000,000,000 cycles, 7,059 s\n"
    )


def test_what_has_no_words_is_named_by_its_path():
    swarmx = f'{{"fan_out": 4, "hop_s": 5e-06, "straggler_share": {SYSTEM.swarmx.straggler_share}}}'
    simd = MappingProxyType({**SYSTEM.pe.simd, "other": 1})
    for system, change in (
        ({"links": replace(SYSTEM.links, hop_cycles=3)}, Change("system.links.hop_cycles", "1", "3")),
        ({"swarmx": None}, Change("system.swarmx", swarmx, "null")),
        ({"pe": replace(SYSTEM.pe, simd=simd)}, Change("system.pe.simd.other", "none", "1")),
    ):
        assert differences(STREAMING, replace(STREAMING, system=replace(SYSTEM, **system))) == [change]


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all numbers, strings and truths of plain data."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*path, key))
    elif value is not None:
        yield path


LEAVES = {
    name: [path for path in leaves(plain_data(artifact)) if path[-1] not in ("kind", "mode", "low", "high")]
    for name, artifact in ARTIFACTS.items()
}


@given(st.data())
def test_whatever_differs_is_found(data):
    name = data.draw(st.sampled_from(sorted(ARTIFACTS)))
    *path, last = data.draw(st.sampled_from(LEAVES[name]))
    if path == ["pipelined"] and last == "bottleneck":
        return  # there is no stage after the last
    plain = copy.deepcopy(plain_data(ARTIFACTS[name]))
    place: Any = plain
    for key in path:
        place = place[key]
    old = place[last]
    place[last] = not old if isinstance(old, bool) else old + "x" if isinstance(old, str) else old + 1
    changed = from_plain(json.loads(json.dumps(plain)), Artifact)
    assert ir.artifact_text(changed) != ir.artifact_text(ARTIFACTS[name])
    found, back = differences(ARTIFACTS[name], changed), differences(changed, ARTIFACTS[name])
    assert found
    assert all(change.old != change.new for change in found)
    assert {(c.what, c.old, c.new) for c in found} == {(c.what, c.new, c.old) for c in back}
