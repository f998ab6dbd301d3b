"""Every rule of a legal artifact, broken."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.ir import Artifact, Loss, Region, SramEntry, verify_artifact
from tests.unit.ir.artifacts import SRAM, SRAM_BYTES, pipelined_artifact, plan, streaming_artifact

STREAMING = streaming_artifact()
PIPELINED = pipelined_artifact()
FIRST, SECOND, *_ = [stage.name for stage in PIPELINED.pipelined.stages]
LAST = len(PIPELINED.pipelined.stages) - 1


def stage(number: int, **changes: Any) -> Artifact:
    """The pipelined artifact with changes to a stage."""
    stages = list(PIPELINED.pipelined.stages)
    stages[number] = replace(stages[number], **changes)
    return plan(PIPELINED, stages=tuple(stages))


def kernel(**changes: Any) -> Artifact:
    """The artifact with changes to its first kernel."""
    first, *others = STREAMING.kernels
    return replace(STREAMING, kernels=((replace(first[0], **changes), *first[1:]), *others))


def route(number: int, **changes: Any) -> Artifact:
    """The pipelined artifact with changes to a route."""
    routes = list(PIPELINED.pipelined.routes)
    routes[number] = replace(routes[number], **changes)
    return plan(PIPELINED, routes=tuple(routes))


@pytest.mark.parametrize("artifact", [STREAMING, PIPELINED], ids=["streaming", "pipelined"])
def test_examples_are_legal(artifact):
    verify_artifact(artifact)


MORE = (*SRAM, SramEntry("more", 50_000, ""))
SEGMENTS = STREAMING.graph.segments
FIRST_OPS = tuple(op.name for op in SEGMENTS[0].ops)
LAYOUT = STREAMING.streaming.layout


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        (replace(STREAMING, graph=replace(STREAMING.graph, losses=(Loss("none"),))), "no op produces the loss 'none'"),
        (replace(STREAMING, num_csx=3), "num_csx 3 does not divide batch_size 16"),
        (replace(STREAMING, num_csx=0), "num_csx 0 does not divide batch_size 16"),
        (replace(STREAMING, micro_batch_size=3), "2 micro-batches of at most 3 are not 8 samples"),
        (replace(STREAMING, micro_batch_size=0), "micro_batch_size 0 is not of 8 samples of a CSX"),
        (replace(STREAMING, micro_batch_size=8), "2 micro-batches of at most 8 are not 8 samples"),
        (replace(STREAMING, kernels=STREAMING.kernels[1:]), "kernels are of 2 segments, the graph has 3"),
        (
            replace(STREAMING, kernels=(STREAMING.kernels[0][1:], *STREAMING.kernels[1:])),
            f"kernels of segment 0 cover {FIRST_OPS[1]!r}, the stream has {FIRST_OPS[0]!r}",
        ),
        (
            replace(STREAMING, kernels=(*STREAMING.kernels[:-1], STREAMING.kernels[-1][:-1])),
            f"kernels of segment 2 cover {len(SEGMENTS[2].ops) - 1} ops, the stream has {len(SEGMENTS[2].ops)} ops",
        ),
        (kernel(ops=FIRST_OPS), "kernels of segment 0 cover 3 ops, the stream has 2 ops"),
        (kernel(ops=("other",)), f"kernels of segment 0 cover 'other', the stream has {FIRST_OPS[0]!r}"),
        (replace(STREAMING, streaming=None), "mode is weight_streaming, plans are []"),
        (
            replace(STREAMING, pipelined=PIPELINED.pipelined),
            "mode is weight_streaming, plans are ['weight_streaming', 'pipelined']",
        ),
        (replace(PIPELINED, mode=STREAMING.mode), "mode is weight_streaming, plans are ['pipelined']"),
        (replace(STREAMING, active_pes=1201), "active_pes is 1201, the fabric has 1200"),
        (replace(STREAMING, active_pes=0), "active_pes is 0, the fabric has 1200"),
        (
            plan(STREAMING, layout=replace(LAYOUT, columns=21)),
            "layout has 2 x 21 columns and 30 rows, the fabric is 40 x 30",
        ),
        (
            plan(STREAMING, layout=replace(LAYOUT, rows=31)),
            "layout has 2 x 20 columns and 31 rows, the fabric is 40 x 30",
        ),
        (
            replace(STREAMING, sram_used_bytes=SRAM_BYTES - 1),
            f"{STREAMING.streaming.fullest_kernel}: entries of sram add up to {SRAM_BYTES} B, not {SRAM_BYTES - 1}",
        ),
        (
            replace(plan(STREAMING, sram=MORE), sram_used_bytes=SRAM_BYTES + 50_000),
            f"{STREAMING.streaming.fullest_kernel}: needs {SRAM_BYTES + 50_000} B of a PE, which has 49152",
        ),
        (
            plan(STREAMING, fullest_kernel="other"),
            f"the fullest kernel needs {SRAM_BYTES} B, 'other' is named with {SRAM_BYTES} B",
        ),
        (plan(STREAMING, colors={"weights": 24}), "'weights' has color 24, the fabric has 24"),
        (plan(STREAMING, colors={"weights": -1}), "'weights' has color -1, the fabric has 24"),
        (plan(PIPELINED, replicas=(2, 2)), "2 x 2 replicas of 40 x 15 PEs exceed the fabric of 40 x 30"),
        (plan(PIPELINED, replicas=(1, 3)), "1 x 3 replicas of 40 x 15 PEs exceed the fabric of 40 x 30"),
        (stage(0, region=Region(0, 0, 1, 16)), f"{FIRST}: region 1 x 16 at (0, 0) is outside of 40 x 15 at (0, 0)"),
        (stage(0, region=Region(-1, 0, 1, 15)), f"{FIRST}: region 1 x 15 at (-1, 0) is outside of 40 x 15 at (0, 0)"),
        (stage(0, region=Region(0, 0, 0, 15)), f"{FIRST}: region 0 x 15 at (0, 0) is outside of 40 x 15 at (0, 0)"),
        (
            stage(0, region=Region(0, 14, 2, 1)),
            f"regions of {FIRST} and {SECOND} overlap: 2 x 1 at (0, 14) and 1 x 15 at (1, 0)",
        ),
        (stage(1, sram=MORE), f"{SECOND}: entries of sram add up to {SRAM_BYTES + 50_000} B, not {SRAM_BYTES}"),
        (plan(PIPELINED, bottleneck=0), f"bottleneck is stage 0, the slowest takes {4 * (100 + LAST)} cycles"),
        (plan(PIPELINED, kernel_colors={"sums": 24}), "'sums' has color 24, the fabric has 24"),
        (route(1, color=24), "'activation 0' has color 24, the fabric has 24"),
        (route(1, target=LAST + 1), f"route 'activation 0' goes from stage 0 to stage {LAST + 1}"),
    ],
)
def test_what_is_not_legal_is_named(artifact, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        verify_artifact(artifact)


def test_stages_must_be_the_kernels():
    with pytest.raises(ValueError, match=r"^stages are \['other', .*\], kernels are \["):
        verify_artifact(stage(0, name="other"))
    with pytest.raises(ValueError, match="^stages are "):
        verify_artifact(plan(PIPELINED, stages=PIPELINED.pipelined.stages[:-1]))


def test_streamed_kernels_must_be_the_kernels():
    first, *others = STREAMING.streaming.kernels
    with pytest.raises(ValueError, match="^streamed kernels are "):
        verify_artifact(plan(STREAMING, kernels=(first[1:], *others)))


def split_layers(needs: tuple[int, int]) -> Artifact:
    """The streaming artifact, its two layers in a segment each; kernels of the same names need so many bytes."""
    first, layers, last = STREAMING.graph.segments
    apart = [replace(layers, count=1, first=n) for n in layers.numbers]
    streamed = STREAMING.streaming.kernels
    both = [tuple(replace(kernel, sram_bytes=need) for kernel in streamed[1]) for need in needs]
    outer = [tuple(replace(kernel, sram_bytes=1) for kernel in streamed[n]) for n in (0, 2)]
    return replace(
        STREAMING,
        graph=replace(STREAMING.graph, segments=(first, *apart, last)),
        kernels=(STREAMING.kernels[0], STREAMING.kernels[1], STREAMING.kernels[1], STREAMING.kernels[2]),
        streaming=replace(
            STREAMING.streaming, kernels=(outer[0], *both, outer[1]), fullest_kernel=STREAMING.kernels[1][0].name
        ),
    )


@pytest.mark.parametrize("needs", [(SRAM_BYTES, 1), (1, SRAM_BYTES), (SRAM_BYTES, SRAM_BYTES)])
def test_the_fullest_kernel_may_share_its_name_with_others(needs):
    verify_artifact(split_layers(needs))


@pytest.mark.parametrize("needs", [(SRAM_BYTES + 1, SRAM_BYTES), (SRAM_BYTES, SRAM_BYTES + 1)])
def test_every_kernel_that_shares_a_name_counts(needs):
    name = STREAMING.kernels[1][0].name
    message = f"the fullest kernel needs {SRAM_BYTES + 1} B, {name!r} is named with {SRAM_BYTES} B"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        verify_artifact(split_layers(needs))


def test_every_route_that_shares_a_name_counts():
    with pytest.raises(ValueError, match="^'activation 1' has color 24, the fabric has 24$"):
        verify_artifact(route(1, name="activation 1", color=24))


RECTANGLES = st.builds(Region, st.integers(0, 12), st.integers(0, 8), st.integers(1, 5), st.integers(1, 5))


@given(st.lists(RECTANGLES, min_size=LAST + 1, max_size=LAST + 1))
def test_overlaps_are_found_as_pe_by_pe(regions):
    stages = tuple(replace(s, region=r) for s, r in zip(PIPELINED.pipelined.stages, regions, strict=True))
    covered = [(x, y) for r in regions for x in range(r.x, r.x + r.width) for y in range(r.y, r.y + r.height)]
    artifact = plan(PIPELINED, stages=stages)
    if len(set(covered)) == len(covered):
        verify_artifact(artifact)
    else:
        with pytest.raises(ValueError, match="overlap"):
            verify_artifact(artifact)


@given(st.data())
def test_few_overlaps_are_found_as_pe_by_pe(data):
    """Most random rectangles overlap; here the columns do not, but for one that moves."""
    number = data.draw(st.integers(0, LAST))
    region = data.draw(st.builds(Region, st.integers(0, 35), st.integers(0, 10), st.integers(1, 5), st.integers(1, 5)))
    regions = [s.region for s in PIPELINED.pipelined.stages]
    touched = {n for n in range(LAST + 1) if n != number and region.x <= regions[n].x < region.x + region.width}
    if touched:
        with pytest.raises(ValueError, match="overlap"):
            verify_artifact(stage(number, region=region))
    else:
        verify_artifact(stage(number, region=region))
