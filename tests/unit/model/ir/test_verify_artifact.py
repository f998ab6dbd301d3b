"""Every rule of a legal artifact, broken."""

import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import ArtifactError
from cstool.model.ir import Artifact, Graph, Loss, Region, SramEntry, require_model, verify_artifact
from tests.models import FAMILIES, decoder, fc_mnist
from tests.unit.model.ir.artifacts import SRAM, SRAM_BYTES, pipelined_artifact, plan, streaming_artifact

STREAMING = streaming_artifact()
PIPELINED = pipelined_artifact()
FIRST, SECOND, *_ = [stage.name for stage in PIPELINED.pipelined.stages]
LAST = len(PIPELINED.pipelined.stages) - 1


def changed(section: str, number: int, **changes: Any) -> Artifact:
    found = list(getattr(PIPELINED.pipelined, section))
    found[number] = replace(found[number], **changes)
    return plan(PIPELINED, **{section: tuple(found)})


stage, route = partial(changed, "stages"), partial(changed, "routes")
MORE = (*SRAM, SramEntry("more", 50_000, ""))
KERNELS, PLAN = STREAMING.kernels, STREAMING.streaming
OPS = [[op.name for op in segment.ops] for segment in STREAMING.graph.segments]


def streaming(**changes: Any) -> Artifact:
    """The streaming artifact with changes to itself, or to the ops of its first kernel."""
    if (ops := changes.pop("ops", None)) is not None:
        changes["kernels"] = ((replace(KERNELS[0][0], ops=ops), *KERNELS[0][1:]), *KERNELS[1:])
    return replace(STREAMING, **changes)


FULLEST, OF_0 = "the fullest kernel needs", "kernels of segment 0 cover"
ENTRIES, PLANS = f"{PLAN.fullest_kernel}: entries of sram add up to", "mode is weight_streaming, plans"


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        (streaming(graph=replace(STREAMING.graph, losses=(Loss("none"),))), "no op produces the loss 'none'"),
        (streaming(num_csx=3), "num_csx 3 does not divide batch_size 16"),
        (streaming(num_csx=0), "num_csx 0 does not divide batch_size 16"),
        (streaming(micro_batch_size=3), "2 micro-batches of at most 3 are not 8 samples"),
        (streaming(micro_batch_size=0), "micro_batch_size 0 is not of 8 samples of a CSX"),
        (streaming(micro_batch_size=8), "2 micro-batches of at most 8 are not 8 samples"),
        (streaming(kernels=KERNELS[1:]), "kernels are of 2 segments, the graph has 3"),
        (streaming(kernels=(KERNELS[0][1:], *KERNELS[1:])), f"{OF_0} {OPS[0][1]!r}, the stream has {OPS[0][0]!r}"),
        (
            streaming(kernels=(*KERNELS[:-1], KERNELS[-1][:-1])),
            f"kernels of segment 2 cover {len(OPS[2]) - 1} ops, the stream has {len(OPS[2])} ops",
        ),
        (streaming(ops=tuple(OPS[0])), "kernels of segment 0 cover 3 ops, the stream has 2 ops"),
        (streaming(ops=("other",)), f"{OF_0} 'other', the stream has {OPS[0][0]!r}"),
        (streaming(streaming=None), "mode is weight_streaming, plans are []"),
        (streaming(pipelined=PIPELINED.pipelined), f"{PLANS} are ['weight_streaming', 'pipelined']"),
        (replace(PIPELINED, mode=STREAMING.mode), "mode is weight_streaming, plans are ['pipelined']"),
        (streaming(active_pes=1201), "active_pes is 1201, the fabric has 1200"),
        (streaming(active_pes=0), "active_pes is 0, the fabric has 1200"),
        *(
            (
                plan(STREAMING, layout=replace(PLAN.layout, columns=columns, rows=rows)),
                f"layout has 2 x {columns} columns and {rows} rows, the fabric is 40 x 30",
            )
            for columns, rows in ((21, 30), (20, 31))
        ),
        (streaming(sram_used_bytes=SRAM_BYTES - 1), f"{ENTRIES} {SRAM_BYTES} B, not {SRAM_BYTES - 1}"),
        (
            replace(plan(STREAMING, sram=MORE), sram_used_bytes=SRAM_BYTES + 50_000),
            f"{PLAN.fullest_kernel}: needs {SRAM_BYTES + 50_000} B of a PE, which has 49152",
        ),
        (plan(STREAMING, fullest_kernel="other"), f"{FULLEST} {SRAM_BYTES} B, 'other' is named with {SRAM_BYTES} B"),
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
        # Beside another of that name.
        (route(1, name="activation 1", color=24), "'activation 1' has color 24, the fabric has 24"),
    ],
)
def test_what_is_not_legal_is_named(artifact, message):
    for legal in (STREAMING, PIPELINED):
        verify_artifact(legal)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        verify_artifact(artifact)


def test_stages_and_streamed_kernels_must_be_the_kernels():
    first, *others = STREAMING.streaming.kernels
    for artifact, message in (
        (stage(0, name="other"), r"^stages are \['other', .*\], kernels are \["),
        (plan(PIPELINED, stages=PIPELINED.pipelined.stages[:-1]), "^stages are "),
        (plan(STREAMING, kernels=(first[1:], *others)), "^streamed kernels are "),
    ):
        with pytest.raises(ValueError, match=message):
            verify_artifact(artifact)


@pytest.mark.parametrize("needs", [(0, -1), (-1, 0), (0, 0), (1, 0), (0, 1)])
def test_every_kernel_that_shares_the_name_of_the_fullest_one_counts(needs):
    """Two layers in a segment each; kernels of the same names need so many bytes more than are named."""
    first, layers, last = STREAMING.graph.segments
    apart = [replace(layers, count=1, first=n) for n in layers.numbers]
    streamed, name = STREAMING.streaming.kernels, STREAMING.kernels[1][0].name
    both = [tuple(replace(kernel, sram_bytes=SRAM_BYTES + need) for kernel in streamed[1]) for need in needs]
    outer = [tuple(replace(kernel, sram_bytes=1) for kernel in streamed[n]) for n in (0, 2)]
    artifact = replace(
        plan(STREAMING, kernels=(outer[0], *both, outer[1]), fullest_kernel=name),
        graph=replace(STREAMING.graph, segments=(first, *apart, last)),
        kernels=(STREAMING.kernels[0], STREAMING.kernels[1], STREAMING.kernels[1], STREAMING.kernels[2]),
    )
    message = f"{FULLEST} {SRAM_BYTES + 1} B, {name!r} is named with {SRAM_BYTES} B"
    with nullcontext() if max(needs) == 0 else pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        verify_artifact(artifact)


RECTANGLES = st.builds(Region, st.integers(0, 12), st.integers(0, 8), st.integers(1, 5), st.integers(1, 5))
ONE_MOVED = st.tuples(
    st.integers(0, LAST),
    st.builds(Region, st.integers(0, 35), st.integers(0, 10), st.integers(1, 5), st.integers(1, 5)),
).map(lambda moved: [moved[1] if n == moved[0] else s.region for n, s in enumerate(PIPELINED.pipelined.stages)])
"""most random rectangles overlap; the columns do not, but for one that moves"""


@given(st.lists(RECTANGLES, min_size=LAST + 1, max_size=LAST + 1) | ONE_MOVED)
def test_overlaps_are_found_as_pe_by_pe(regions):
    stages = tuple(replace(s, region=r) for s, r in zip(PIPELINED.pipelined.stages, regions, strict=True))
    covered = [(x, y) for r in regions for x in range(r.x, r.x + r.width) for y in range(r.y, r.y + r.height)]
    artifact = plan(PIPELINED, stages=stages)
    overlaps = len(set(covered)) < len(covered)
    with pytest.raises(ValueError, match="overlap") if overlaps else nullcontext():
        verify_artifact(artifact)


# An artifact belongs to one model.
GRAPH = decoder(layers=2)


def segment(**changes: Any) -> Graph:
    first, layers, last = GRAPH.segments
    return replace(GRAPH, segments=(first, replace(layers, **changes), last))


WEIGHTS, OP = GRAPH.segments[1].weights, GRAPH.segments[1].ops[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_model_is_accepted(family):
    require_model(streaming_artifact(decoder(**FAMILIES[family])), decoder(**FAMILIES[family]))


FUNCTION = "transformer_decoder.layers.{n}.ffn.ffn.0.linear_layer.activation with function"
WORDS = "embedding_layer.word_embeddings.weight"


@pytest.mark.parametrize(
    ("graph", "got"),
    [
        (fc_mnist(), "model gpt2 instead of fc_mnist"),
        ({"sequence": 4}, "input input_ids with shape (8,) instead of (4,)"),
        ({"layers": 3}, "repetitions 2 instead of 3 in segment 1"),
        ({"hidden_size": 16}, "tensor words with shape (8, 8) instead of (8, 16) in segment 0"),
        ({"vocab_size": 12}, f"weight {WORDS} with shape (11, 8) instead of (12, 8) in segment 0"),
        ({"dropout": 0.5}, "op embedding_layer.position_embeddings with dropout 0.0 instead of 0.5 in segment 0"),
        ({"initializer_range": 0.5}, f"weight {WORDS} with std 0.02 instead of 0.5 in segment 0"),
        ({"layer_norm_epsilon": 0.5}, f"op {OP.name} with epsilon 1e-05 instead of 0.5 in segment 1"),
        ({"nonlinearity": "relu"}, f"op {FUNCTION} gelu instead of relu in segment 1"),
        ({"share_embedding_weights": False}, "weights 2 instead of 3 in segment 2"),
        (replace(GRAPH, segments=GRAPH.segments[:2]), "segments 3 instead of 2"),
        (segment(weights=WEIGHTS[1:]), f"weight {WEIGHTS[0].name} instead of {WEIGHTS[1].name} in segment 1"),
        (segment(weights=WEIGHTS[:-1]), f"weights {len(WEIGHTS)} instead of {len(WEIGHTS) - 1} in segment 1"),
        (
            segment(weights=(replace(WEIGHTS[0], decays=True), *WEIGHTS[1:])),
            f"weight {WEIGHTS[0].name} with decays False instead of True in segment 1",
        ),
        (segment(stride=2), "stride 1 instead of 2 in segment 1"),
        (
            segment(ops=(replace(OP, attributes={}), *GRAPH.segments[1].ops[1:])),
            f"op {OP.name} with epsilon 1e-05 instead of none in segment 1",
        ),
        (replace(GRAPH, losses=(Loss("other"),)), "loss loss instead of other"),
        (replace(GRAPH, aliases={}), f"alias lm_head.weight {WORDS} instead of none"),
    ],
)
def test_another_model_is_refused_with_the_first_difference(graph, got):
    if isinstance(graph, dict):
        graph = decoder(**{"layers": 2, **graph})
    with pytest.raises(ArtifactError) as caught:
        require_model(streaming_artifact(GRAPH), graph)
    assert caught.value.message == f"artifact: must be of this model, got one with {got}"
    assert (caught.value.hint, caught.value.exit_code) == ("compile this model", 2)
