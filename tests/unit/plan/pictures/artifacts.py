"""Artifacts made by hand: plausible numbers, no compiler."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from cstool.model import ir
from cstool.model.ir import Artifact, PhaseCycles, Region, Route, SramEntry, Stage, StreamedKernel
from cstool.model.system import Fabric
from tests.models import decoder
from tests.unit.model.ir import artifacts

SYSTEM = replace(artifacts.SYSTEM, name="cs2", wafer="WSE-2", fabric=Fabric(750, 994))
LAYER = {
    "self_attn.proj_q_dense_layer": ("matmul", 3),
    "self_attn": ("attention", 1),
    "self_attn.proj_output_dense_layer": ("matmul", 1),
    "ffn.ffn.0.linear_layer": ("matmul", 4),
    "ffn.ffn.1.linear_layer": ("matmul", 4),
}
"""kernels of a layer -> their kinds, and shares of its work"""
SRAM = SramEntry("code", 6144, "as the system file says"), SramEntry("stack", 1024, "as the system file says")


def cycles(total: int, bound: str = "compute") -> ir.KernelCycles:
    """Cycles that add up to `total`, each phase for one reason alone."""
    third, none = total // 3, PhaseCycles(0, 0, 0, 0, 0)
    delta = "link" if bound == "compute" else bound
    shares = ((bound, third), (delta, third), (bound, total - 2 * third))
    return ir.KernelCycles(*(replace(none, **{reason: count}) for reason, count in shares))


def kernels(stages: int) -> list[tuple[str, str, int]]:
    """Name, kind and share of the work of so many kernels: a network of 3, or a decoder."""
    if stages == 3:
        return [("fc_layers.0", "matmul", 8), ("fc_layers.1", "matmul", 4), ("last_layer", "loss", 1)]
    layers = range(math.ceil((stages - 2) / len(LAYER)))
    found = [(f"transformer_decoder.layers.{n}.{name}", *rest) for n in layers for name, rest in LAYER.items()]
    return [("embedding_layer.word_embeddings", "embedding", 6), *found[: stages - 2], ("lm_head", "loss", 8)]


def columns_of_regions(shares: Sequence[int], width: int, height: int) -> list[Region]:
    """Regions in proportion to their shares: columns, filled downwards and upwards by turns."""
    count = max(1, round(math.sqrt(len(shares) * width / height)))
    cuts = [round(len(shares) * c / count) for c in range(count + 1)]
    regions: list[Region] = []
    for number, (first, last) in enumerate(pairwise(cuts)):
        x, right = (width * sum(shares[:cut]) // sum(shares) for cut in (first, last))
        group = shares[first:last]
        rows = [height * sum(group[:n]) // (sum(group) or 1) for n in range(len(group) + 1)]
        column = [Region(x, top, right - x, bottom - top) for top, bottom in pairwise(rows)]
        regions += [replace(r, y=height - r.y - r.height) for r in column] if number % 2 else column
    return regions


def pipelined(stages: int, replicas: tuple[int, int] = (1, 1)) -> Artifact:
    width, height = SYSTEM.fabric.width // replicas[0], SYSTEM.fabric.height // replicas[1]
    named, last = kernels(stages), stages - 1
    regions = columns_of_regions([share for _, _, share in named], width, height)
    middles = [(r.x + r.width // 2, r.y + r.height // 2) for r in regions]

    def stage(number: int) -> Stage:
        (name, kind, _), is_table = named[number], named[number][1] == "embedding"
        took = cycles(12_000 if is_table else 100_000 - 137 * (number % 7))
        weights = "weights, master copy, optimizer state, gradient"
        sram = (*SRAM, SramEntry(weights, 40_000 - 300 * number, "ceil(768 / 9) x 18 B"))
        in_flight = 2 * (stages - number) - 1
        return Stage(name, kind, regions[number], "inputs over columns", took, is_table, in_flight, False, sram)

    def route(kind: str, source: int, target: int, color: int) -> Route:
        shift = 4 if kind == "delta" else 0
        (a, b), (c, d) = ((x + shift, y) for x, y in (middles[source], middles[target]))
        path = ((a, b), (a, d), (c, d)) if a != c and b != d else ((a, b), (c, d))
        return Route(f"{kind} {source}", source, target, kind, color, 2, path)

    routes = [route("activation", n, n + 1, n % 10) for n in range(last)]
    routes += [route("delta", n + 1, n, 10 + n % 10) for n in range(last)]
    routes.append(Route("input", -1, 0, "input", 20, 1, ((0, middles[0][1]), middles[0])))
    if stages > 3:
        routes.append(route("tie", last, 0, 20))
        routes += [route("activation", n, n + 3, 20) for n in range(0, last - 3, 5)]
    planned = tuple(map(stage, range(stages)))
    slowest = max(range(stages), key=lambda n: planned[n].cycles.total)
    colors = {"partial sums": 16}
    return replace(
        streaming(),
        mode=ir.ExecutionMode.PIPELINED,
        micro_batch_size=replicas[0] * replicas[1],
        streaming=None,
        pipelined=ir.PipelinedPlan(
            replicas, width, height, planned, tuple(routes), colors, slowest, update_cycles=1_000, wire_pes=12_345
        ),
    )


def streaming(layers: int = 12, *, width: int = 768, tokens_per_pe: int = 23, groups: int = 3) -> Artifact:
    graph = decoder(layers=2)
    outer, inner, last = graph.segments
    graph = replace(graph, segments=(outer, replace(inner, count=layers), last))
    columns = SYSTEM.fabric.width // groups
    i = math.ceil(width / columns)
    layer = "transformer_decoder.layers.{n}."

    def kernel(name: str, rows: int, bound: str = "compute") -> StreamedKernel:
        took, weights = cycles(max(rows, width) * 9 * i, bound), rows * width
        return StreamedKernel(name, i if rows else 0, rows, 2982, weights, 2 * weights, 4 * weights, took, 41_000)

    outputs = (3 * width, 0, width, 4 * width, width)
    inner_kernels = tuple(kernel(layer + name, rows) for name, rows in zip(LAYER, outputs, strict=True))
    embedding, head = kernel("embedding_layer.word_embeddings", 51_281, "ingress"), kernel("lm_head", 50_257)
    made = ("norm1.y", "self_attn.proj_q_dense_layer.y", "self_attn.proj_k_dense_layer.y", "self_attn.context")
    tile = tokens_per_pe * i * 2, f"{tokens_per_pe} tokens x ceil({width:,} / {columns}) x 2 B"
    account = (
        *SRAM,
        SramEntry("keys and values passing by", 2048, f"2 blocks x 2 x 64 keys x ceil({width:,} / {columns}) x 2 B"),
        SramEntry("kept of other layers", 30_000, f"{tokens_per_pe} tokens x 1,304 B of what backward needs"),
        *(SramEntry(f"{delta}{layer}{name}", *tile) for delta in ("", "delta ") for name in made),
    )
    plan = ir.StreamingPlan(
        layout=ir.Layout(groups, columns, SYSTEM.fabric.height, tokens_per_pe),
        kernels=((embedding,), inner_kernels, (head,)),
        sram=account,
        fullest_kernel=f"{layer}self_attn",
        colors={"weights": 0, "partial sums": 1},
        prefetch_bytes=26_000,
        micro_batches=8,
        streamed_bytes=4_587_048_960,
        gradient_bytes=3_982_073_856,
    )
    sizes = {"num_csx": 1, "batch_size": 512, "micro_batch_size": 64, "active_pes": 745_500}
    return artifacts.streaming_artifact(graph, system=SYSTEM, streaming=plan, **sizes)
