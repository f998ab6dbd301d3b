"""Pipelined: a kernel whose weights stay in a region of its own.

Each PE of a w x h region holds a tile of the weight: i = ceil(inputs / w) of its inputs and o = ceil(outputs / h) of
its outputs, or the two the other way round. For every token,

- forward, each of the i elements that arrive is multiplied with a column of the tile: i AXPYs of length o. The o sums
  are partial; they pass along the w PEs that share the outputs, and each adds its own: o elements at the rate of a
  fabric operand, and o wavelets on the link.
- delta is the transpose: partial sums of i elements along the h PEs.
- gradient adds the outer product: nothing moves.

The loss keeps no logits: its delta begins with the forward product again. A sparse weight is kept with its zeros, and
gains nothing: sparsity pays where weights stream.

In all three the vectors run over the longer side of the tile, as dot products where that is the side summed over.

Source: "Example: FC Layer (GEMV)", of the vendor's presentation of the CS-1's execution strategies (2020): stationary
tiles, an input activation element times a column of the weight matrix, partial sums accumulated across PEs.

In attention each PE has d = ceil(width / w) elements of ceil(tokens / h) queries, and keys and values pass by along
the column in blocks. With n keys per query on average, q k^T and p v are d AXPYs over n keys each, and the softmax
between is element by element; backward computes the scores again and has four products more. Early tokens have fewer
keys than late ones; rows are taken to have both, as they do when tokens are dealt to them in turn.
"""

import math
from collections.abc import Sequence
from typing import Any

from cstool.model.activations import EXPONENTIAL_OPS
from cstool.model.ir import Lookup, MatMul, OpWork, Pairs, RowSums, VectorOps
from cstool.plan.timing.pe import SUM_BYTES, Pe, ceil_div, maximum, minimum
from cstool.plan.timing.phases import Phases

KEYS_BYTES = 4096
"""memory that a PE gives to keys and values while they pass by, and their deltas: two blocks of each (chosen)"""
MOST_KEYS = 64
"""keys of a block, at most: longer ones hardly gain (chosen)"""
SOFTMAX_OPS = EXPONENTIAL_OPS + 4
"""per score: scale, mask, maximum, exponential, sum"""


def region_phases(pe: Pe, work: Sequence[OpWork], width: Any, height: Any, needs_delta: bool = True) -> Phases:
    """Return the limits of a kernel for one sample, inputs (or heads) over the columns of its region.

    Args:
        width, height: of the region [PEs]; numbers or arrays
        needs_delta: whether something before the kernel wants its delta; if not, products need none

    Example: 8 inputs and 12 outputs on 2 x 3 PEs are tiles of 4 x 4. For each of 5 tokens, 4 AXPYs of 4 elements at 1 +
    1 cycles, and 4 partial sums on their way.

    >>> from cstool.model.system import load_system
    >>> work = [MatMul(tokens=5, inputs=8, outputs=12)]
    >>> region_phases(Pe(load_system("cs2"), 16), work, 2, 3).forward.compute
    60
    """
    phases = Phases(pe.efficiency)
    for item in work:
        match item:
            case MatMul():
                _add_matmul(phases, pe, item, width, height, needs_delta)
            case Pairs():
                queries, (forward, delta) = ceil_div(item.tokens, height), query_cycles(pe, item, width)
                # Keys and values pass by; backward, their deltas come back.
                passing = item.key_tokens * pe.wavelets(2 * ceil_div(item.kv_width, width)) * (height > 1)
                phases.forward.add(compute=queries * forward, link=passing)
                phases.delta.add(compute=queries * delta, link=2 * passing)
            case Lookup():
                # The PE that holds a part of the row sends it on its way.
                passing = item.tokens * pe.wavelets(ceil_div(item.width, width))
                phases.forward.add(link=passing)
                if not item.is_frozen:
                    phases.gradient.add(link=passing)
            case VectorOps():
                elements = ceil_div(item.tokens * item.width, width * height)
                phases.forward.add(compute=pe.vector_cycles(elements, item.forward))
                phases.delta.add(compute=pe.vector_cycles(elements, item.backward))
            case RowSums():
                # Along the columns and back. Successive tokens follow each other, so the way there and back is hidden.
                forward, backward = item.tokens * item.forward, item.tokens * item.backward
                is_shared = width > 1
                phases.forward.add(compute=pe.partial_sum_cycles(forward, width), link=2 * forward * is_shared)
                phases.delta.add(compute=pe.partial_sum_cycles(backward, width), link=2 * backward * is_shared)
    return phases


def key_block(pe: Pe, tokens: int, d: Any) -> Any:
    """Keys of a sample, `d` elements each, that a PE holds at a time: as many as the bytes for them take.

    Example: a key of 16 elements and its value are held twice, 2 x 2 x 16 x 2 bytes, with sums of their deltas, 2 x 16
    x 4 bytes: 256, of which 4,096 bytes hold 16.

    >>> from cstool.model.system import load_system
    >>> key_block(Pe(load_system("cs2"), 16), tokens=2048, d=16)
    16
    """
    return maximum(1, minimum(MOST_KEYS, tokens, KEYS_BYTES // key_bytes(pe, d)))


def key_bytes(pe: Pe, d: Any) -> Any:
    """Size of a key and its value [bytes]: twice, one block passing and one at work, and the sums of their deltas."""
    return 2 * 2 * d * pe.operand_bytes + 2 * d * SUM_BYTES


def pair_cycles(pe: Pe, keys: int, d: Any, block: Any) -> Any:
    """Return the cycles of one product of a query with its keys.

    The vectors run over the keys of a block, or over the `d` elements of each key, the shorter work of both.

    Example: 100 keys of 4 elements, 64 to a block, are 2 x 4 AXPYs of at most 64 keys, 1 + 16 cycles each; over the
    elements they would be 100 AXPYs of 4, 2 cycles each.

    >>> from cstool.model.system import load_system
    >>> pair_cycles(Pe(load_system("cs2"), 16), keys=100, d=4, block=64)
    136
    """
    over_keys = ceil_div(keys, block) * d * pe.axpy_cycles(minimum(keys, block))
    return minimum(over_keys, keys * pe.axpy_cycles(d))


def query_cycles(pe: Pe, item: Pairs, columns: Any) -> tuple[Any, Any]:
    """Return the cycles of a query forward and backward, heads over so many columns of PEs.

    Backward there are scores and probabilities again, then dV, dP, dQ, dK.
    """
    d, keys = ceil_div(item.width, columns), ceil_div(item.pairs, item.tokens)
    heads = ceil_div(d, item.head_width)
    product = pair_cycles(pe, keys, d, key_block(pe, item.key_tokens, ceil_div(item.kv_width, columns)))
    softmax = heads * pe.vector_cycles(keys, SOFTMAX_OPS)
    # Where a head lies over several columns, its scores are partial sums.
    scores = heads * pe.partial_sum_cycles(keys, 1 + (d % item.head_width > 0))
    return 2 * product + softmax + scores, 5 * product + 2 * softmax + 2 * scores


def _add_matmul(phases: Phases, pe: Pe, item: MatMul, width: Any, height: Any, needs_delta: bool) -> None:
    i, o = ceil_div(item.inputs, width), ceil_div(item.outputs, height)
    # PEs that have the busiest expert multiply with the tokens of that; the others wait for them.
    tokens = math.ceil(item.tokens * item.busiest)
    # Sums begin in other banks than the tile, as in weight streaming.
    products = _products(pe, i, o)
    compute = tokens * (products + pe.partial_sum_cycles(o, width))
    link = tokens * maximum(o * (width > 1), pe.wavelets(i))
    phases.forward.add(compute=compute, link=link)
    if item.is_repeated:
        phases.delta.add(compute=compute, link=link)
    if needs_delta:
        phases.delta.add(
            compute=tokens * (products + pe.partial_sum_cycles(i, height)),
            link=tokens * maximum(i * (height > 1), pe.wavelets(o)),
        )
    if (part := item.trained_part) is not None:
        o = ceil_div(part.outputs, height)
        phases.gradient.add(compute=tokens * _products(pe, i, o))


def _products(pe: Pe, i: Any, o: Any) -> Any:
    """AXPYs of a tile with one token, over its longer side."""
    return minimum(i * pe.axpy_cycles(o, is_apart=True), o * pe.axpy_cycles(i, is_apart=True))
