"""Weight streaming: a kernel on the whole wafer, its weights passing through.

Activations stay: a PE has t tokens (rows of the wafer are tokens) of i = ceil(inputs / columns) hidden elements.
Weights come one row of W after the other, one row for each output; column x gets the i weights of its hidden
elements, and all PEs of the column see them. For each output,

- forward, each weight is multiplied with the PE's tokens: i AXPYs of length t into t accumulators. These are partial
  sums over the columns: t elements pass along the row, each PE adds its own.
- delta: the row's t deltas of the output are broadcast, each weight that arrives times these is added to the delta of
  the input: i AXPYs of length t, no sums between PEs.
- gradient: the same t deltas times the i x t inputs, i dot products of length t; the sums over all rows pass down the
  column, i elements, then along the groups of columns, and leave the wafer. No weights are needed.

The loss keeps no logits: for each output its delta begins with the forward product again, of the same row of W.

Weights come in, and gradients leave, at the rate of the links off the wafer.

Source: Lie, "Multi-Million Core, Multi-Wafer AI Cluster" (2021): activations resident across the fabric, weights
streamed and never stored, partial sums accumulated across the wafer, gradients streamed out. Which axis holds what,
and the order within a row of W, are this project's reading; the vendor has published no more.
"""

from __future__ import annotations

from collections.abc import Sequence

from cstool.ir import Layout
from cstool.perf.pe import Pe, ceil_div
from cstool.perf.phases import Phases
from cstool.perf.region import SOFTMAX_OPS, key_block, pair_cycles
from cstool.perf.work import Lookup, MatMul, OpWork, Pairs, VectorOps


def streamed_phases(
    pe: Pe, work: Sequence[OpWork], layout: Layout, samples: int, stream_bytes_per_weight: int
) -> Phases:
    """Return the limits of a kernel for one micro-batch.

    Args:
        pe: of the wafer
        work: of the kernel's ops
        layout: of the activations of the micro-batch
        samples: of the micro-batch
        stream_bytes_per_weight: what a weight takes on its way in, a gradient on its way out
    """
    phases = Phases()
    for item in work:
        match item:
            case MatMul():
                _add_matmul(phases, pe, item, layout, stream_bytes_per_weight)
            case Pairs():
                _add_pairs(phases, pe, item, layout, samples)
            case Lookup():
                # All rows pass by, those PEs take what their tokens ask for; of gradients, only these rows leave.
                i = ceil_div(item.width, layout.columns)
                sent = min(item.rows, item.tokens * samples)
                into, out = (edge_cycles(pe, n * item.width * stream_bytes_per_weight) for n in (item.rows, sent))
                phases.forward.add(link=item.rows * i, ingress=into)
                phases.gradient.add(link=sent * i, ingress=out)
            case VectorOps():
                elements = layout.tokens_per_pe * ceil_div(item.width, layout.columns)
                phases.forward.add(compute=pe.vector_cycles(elements, item.forward))
                phases.delta.add(compute=pe.vector_cycles(elements, item.backward))
    return phases


def hop_latency_cycles(pe: Pe, layout: Layout) -> int:
    """Return the cycles from the edge to the farthest PE of a group and through the sums of a row.

    Once per phase of a kernel. That weights cross the groups before it is left out.
    """
    links = pe.system.links
    return (layout.columns + layout.rows) * links.hop_cycles + 2 * links.ramp_cycles


def edge_cycles(pe: Pe, count_bytes: int) -> int:
    """Return the cycles, of the PEs' clock, in which so many bytes cross the edge of the wafer one way."""
    return int(ceil_div(count_bytes * int(pe.system.clock_hz), int(pe.system.io_bytes_per_s)))


def _add_matmul(phases: Phases, pe: Pe, item: MatMul, layout: Layout, stream_bytes_per_weight: int) -> None:
    t, i = layout.tokens_per_pe, ceil_div(item.inputs, layout.columns)
    products = i * pe.axpy_cycles(t)
    edge = edge_cycles(pe, item.weights * stream_bytes_per_weight)
    partial = t if layout.columns > 1 else 0
    compute = item.outputs * (products + pe.partial_sum_cycles(t, layout.columns))
    link = item.outputs * max(partial, i)
    phases.forward.add(compute=compute, link=link, ingress=edge)
    if item.is_repeated:
        # The row of W that arrives for the delta serves both products; its i weights pass along the column once.
        phases.delta.add(compute=compute, link=item.outputs * partial)
    phases.delta.add(compute=item.outputs * products, link=item.outputs * max(pe.wavelets(t), i), ingress=edge)
    phases.gradient.add(
        compute=item.outputs
        * (products + pe.partial_sum_cycles(i, layout.rows) + pe.partial_sum_cycles(i, layout.groups)),
        link=item.outputs * max(i, pe.wavelets(t)),
        ingress=edge,
    )


def _add_pairs(phases: Phases, pe: Pe, item: Pairs, layout: Layout, samples: int) -> None:
    d = ceil_div(item.width, layout.columns)
    kv = ceil_div(item.kv_width, layout.columns)
    heads, keys = ceil_div(d, item.head_width), ceil_div(item.pairs, item.tokens)
    t = layout.tokens_per_pe
    product = pair_cycles(pe, keys, d, key_block(pe, item.tokens, kv))
    softmax = heads * pe.vector_cycles(keys, SOFTMAX_OPS)
    scores = heads * pe.partial_sum_cycles(keys, 1 + (d < item.head_width))
    # Keys and values of the samples of a group pass by all its rows.
    passing = item.tokens * ceil_div(samples, layout.groups) * pe.wavelets(2 * kv)
    phases.forward.add(compute=t * (2 * product + softmax + scores), link=passing)
    phases.delta.add(compute=t * (5 * product + 2 * softmax + 2 * scores), link=2 * passing)
