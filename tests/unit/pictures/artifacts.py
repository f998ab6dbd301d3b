"""Artifacts made by hand: plausible numbers, no compiler."""

import math
from collections.abc import Sequence
from dataclasses import replace

from cstool.ir import (
    Artifact,
    ExecutionMode,
    KernelCycles,
    Layout,
    PhaseCycles,
    PipelinedPlan,
    Region,
    Route,
    SramEntry,
    Stage,
    StreamedKernel,
    StreamingPlan,
)
from cstool.system import Fabric, System
from tests.models import decoder
from tests.unit.ir.artifacts import SYSTEM as SMALL_SYSTEM
from tests.unit.ir.artifacts import streaming_artifact

SYSTEM = replace(SMALL_SYSTEM, name="cs2", wafer="WSE-2", fabric=Fabric(750, 994))

LAYER = {
    "self_attn.proj_q_dense_layer": "matmul",
    "self_attn": "attention",
    "self_attn.proj_output_dense_layer": "matmul",
    "ffn.ffn.0.linear_layer": "matmul",
    "ffn.ffn.1.linear_layer": "matmul",
}
"""kernels of a layer -> their kinds"""
SHARES = (3, 1, 1, 4, 4)
"""of the work of a layer"""


def phases(total: int, bound: str = "compute") -> KernelCycles:
    """Cycles that add up to `total`."""
    forward = total // 3
    return KernelCycles(
        phase(forward, bound),
        phase(forward, "link" if bound == "compute" else bound),
        phase(total - 2 * forward, bound),
    )


def phase(cycles: int, bound: str) -> PhaseCycles:
    """So many cycles, for this reason alone."""
    return replace(PhaseCycles(0, 0, 0, 0, 0), **{bound: cycles})


def kernel_names(stages: int) -> list[tuple[str, str, int]]:
    """Name, kind and share of the work of so many kernels: a network of 3, or a decoder."""
    if stages == 3:
        return [("fc_layers.0", "matmul", 8), ("fc_layers.1", "matmul", 4), ("last_layer", "loss", 1)]
    layers = math.ceil((stages - 2) / len(LAYER))
    found = [
        (f"transformer_decoder.layers.{n}.{name}", kind, share)
        for n in range(layers)
        for (name, kind), share in zip(LAYER.items(), SHARES, strict=True)
    ]
    return [("embedding_layer.word_embeddings", "embedding", 6), *found[: stages - 2], ("lm_head", "loss", 8)]


def columns_of_regions(shares: Sequence[int], width: int, height: int) -> list[Region]:
    """Regions in proportion to their shares: columns, filled downwards and upwards by turns."""
    count = max(1, round(math.sqrt(len(shares) * width / height)))
    cuts = [round(len(shares) * c / count) for c in range(count + 1)]
    groups = [list(shares[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)]
    regions, x, seen, total = [], 0, 0, sum(shares)
    for number, group in enumerate(groups):
        seen += sum(group)
        right = width * seen // total
        column, y, above = [], 0, 0
        for share in group:
            above += share
            bottom = height * above // sum(group)
            column.append(Region(x, y, right - x, bottom - y))
            y = bottom
        if number % 2:
            column = [replace(region, y=height - region.y - region.height) for region in column]
        regions += column
        x = right
    return regions


def pipelined(stages: int, replicas: tuple[int, int] = (1, 1), system: System = SYSTEM) -> Artifact:
    """A pipelined artifact with so many stages and replicas."""
    width, height = system.fabric.width // replicas[0], system.fabric.height // replicas[1]
    names = kernel_names(stages)
    regions = columns_of_regions([share for _, _, share in names], width, height)
    planned = tuple(
        Stage(
            name=name,
            kind=kind,
            region=region,
            orientation="inputs over columns",
            cycles=phases(100_000 - 137 * (number % 7) if kind != "embedding" else 12_000),
            is_memory_bound=kind == "embedding",
            in_flight=2 * (len(names) - number) - 1,
            is_recomputed=False,
            sram=(
                SramEntry("code", 6144, "as the system file says"),
                SramEntry("stack", 1024, "as the system file says"),
                SramEntry(
                    "weights, master copy, optimizer state, gradient", 40_000 - 300 * number, "ceil(768 / 9) x 18 B"
                ),
            ),
        )
        for number, ((name, kind, _), region) in enumerate(zip(names, regions, strict=True))
    )
    last = len(names) - 1
    routes = [
        route
        for number in range(last)
        for route in (
            _route("activation", number, number + 1, regions, number % 10),
            _route("delta", number + 1, number, regions, 10 + number % 10),
        )
    ]
    routes.append(_entry("input", 0, regions[0], 20))
    if stages > 3:
        routes.append(_route("tie", last, 0, regions, 20))
        routes += [_route("activation", n, n + 3, regions, 20) for n in range(0, last - 3, 5)]
    return replace(
        streaming(),
        system=system,
        mode=ExecutionMode.PIPELINED,
        micro_batch_size=replicas[0] * replicas[1],
        streaming=None,
        pipelined=PipelinedPlan(
            replicas=replicas,
            replica_width=width,
            replica_height=height,
            stages=planned,
            routes=tuple(routes),
            kernel_colors={"partial sums": 16},
            bottleneck=max(range(len(planned)), key=lambda n: planned[n].cycles.total),
            update_cycles=1_000,
            wire_pes=12_345,
        ),
    )


def _middle(region: Region) -> tuple[int, int]:
    return region.x + region.width // 2, region.y + region.height // 2


def _route(kind: str, source: int, target: int, regions: Sequence[Region], color: int) -> Route:
    (a, b), (c, d) = _middle(regions[source]), _middle(regions[target])
    shift = 4 if kind == "delta" else 0
    a, c = a + shift, c + shift
    path = [(a, b), (a, d), (c, d)] if a != c and b != d else [(a, b), (c, d)]
    return Route(f"{kind} {source}", source, target, kind, color, 2, tuple(path))


def _entry(name: str, target: int, region: Region, color: int) -> Route:
    x, y = _middle(region)
    return Route(name, -1, target, "input", color, 1, ((0, y), (x, y)))


def streaming(layers: int = 12, *, width: int = 768, tokens_per_pe: int = 23, groups: int = 3) -> Artifact:
    """A weight-streaming artifact of a decoder of so many layers."""
    graph = decoder(layers=2)
    outer, inner, last = graph.segments
    graph = replace(graph, segments=(outer, replace(inner, count=layers), last))
    columns = SYSTEM.fabric.width // groups
    i = math.ceil(width / columns)
    outputs = (3 * width, 0, width, 4 * width, width)

    def kernel(name: str, rows: int, bound: str = "compute") -> StreamedKernel:
        cycles, weights = phases(max(rows, width) * 9 * i, bound), rows * width
        return StreamedKernel(name, i if rows else 0, rows, 2982, weights, 2 * weights, 4 * weights, cycles, 41_000)

    kernels = tuple(
        kernel(f"transformer_decoder.layers.{{n}}.{name}", rows) for name, rows in zip(LAYER, outputs, strict=True)
    )
    tile = f"{tokens_per_pe} tokens x ceil({width:,} / {columns}) x 2 B"
    size = tokens_per_pe * i * 2
    names = ("norm1.y", "self_attn.proj_q_dense_layer.y", "self_attn.proj_k_dense_layer.y", "self_attn.context")
    held = [SramEntry(f"transformer_decoder.layers.{{n}}.{name}", size, tile) for name in names]
    held += [SramEntry(f"delta transformer_decoder.layers.{{n}}.{name}", size, tile) for name in names]
    account = (
        SramEntry("code", 6144, "as the system file says"),
        SramEntry("stack", 1024, "as the system file says"),
        SramEntry("keys and values passing by", 2048, f"2 blocks x 2 x 64 keys x ceil({width:,} / {columns}) x 2 B"),
        SramEntry("kept of other layers", 30_000, f"{tokens_per_pe} tokens x 1,304 B of what backward needs"),
        *held,
    )
    return streaming_artifact(
        graph,
        system=SYSTEM,
        num_csx=1,
        batch_size=512,
        micro_batch_size=64,
        streaming=StreamingPlan(
            layout=Layout(groups, columns, SYSTEM.fabric.height, tokens_per_pe),
            kernels=(
                (kernel("embedding_layer.word_embeddings", 51_281, "ingress"),),
                kernels,
                (kernel("lm_head", 50_257),),
            ),
            sram=account,
            fullest_kernel="transformer_decoder.layers.{n}.self_attn",
            colors={"weights": 0, "partial sums": 1},
            prefetch_bytes=26_000,
            micro_batches=8,
            streamed_bytes=4_587_048_960,
            gradient_bytes=3_982_073_856,
        ),
        active_pes=745_500,
    )
