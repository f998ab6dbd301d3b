"""Answering: weights stay on the wafer, and the tokens of users go past them.

Each layer lies on all PEs of its wafer: a PE of the W x H of them has of each matrix i = ceil(inputs / W) of its inputs
and o = ceil(outputs / H) of its outputs, or the two the other way round. Layers follow one another, on as many wafers
as hold them.

- *decode*: a token of each user meets all matrices. A product is i multiply-adds of length o for each user, then the o
  sums are added up along the PEs that share them and sent back, for all users together: the next product needs them
  there. What a PE computes for a token is little; sums, which go over hundreds of PEs, are most of the time.
- *attention*: keys and values stay where they were made, elements over columns, tokens of all users dealt over rows. A
  PE has d elements of the queries of a token and n of its keys: two products of n x d; scores are partial sums where a
  head lies over several columns; maximum and sum of the softmax, and what it weighs, are sums along the rows.
- *prefill*: each product is one of two matrices that are shifted past each other; of few tokens, a token after the
  other. What lies between is as in pipelined mode (`cstool.plan.timing.region`).

Products and sums are those of `cstool.plan.timing.mesh`, as measured. Attention and element-wise work, which nobody
measured, have the efficiency of training.

Source: He et al., "WaferLLM: Large Language Model Inference at Wafer Scale", OSDI '25, arXiv 2502.04563: decoding as
products of a matrix and a vector on the whole wafer, their sums by trees, keys and values balanced over the rows, a
prompt as products of matrices in rounds. The arithmetic is this project's own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cstool.model.ir import Lookup, MatMul, OpWork, Pairs, RowSums, VectorOps
from cstool.plan.timing.collectives import READ_CYCLES
from cstool.plan.timing.mesh import matvec_cycles, mesh_allreduce_cycles, rounds_cycles
from cstool.plan.timing.pe import SUM_BYTES, Pe, ceil_div
from cstool.plan.timing.region import SOFTMAX_OPS, pair_cycles, region_phases


@dataclass(frozen=True)
class DecodeCycles:
    """What a step of decoding takes, part by part; they follow one another.

    Args:
        products: of the busiest PE
        attention: the same, at the efficiency of PEs, of queries with their keys and values, softmax included
        other: the same, element by element
        sums: over PEs, there and back, and on the way to the farthest PE
    """

    products: int = 0
    attention: int = 0
    other: int = 0
    sums: int = 0

    def __add__(self, more: "DecodeCycles") -> "DecodeCycles":
        """Return both, one after the other."""
        return DecodeCycles(
            self.products + more.products,
            self.attention + more.attention,
            self.other + more.other,
            self.sums + more.sums,
        )

    def __mul__(self, times: int) -> "DecodeCycles":
        """Return this so many times."""
        return DecodeCycles(times * self.products, times * self.attention, times * self.other, times * self.sums)

    @property
    def total(self) -> int:
        """All of it."""
        return self.products + self.attention + self.other + self.sums


def decode_cycles(pe: Pe, work: Sequence[OpWork], users: int, context: int) -> DecodeCycles:
    """Return what ops take for a token of each of so many users, behind so many tokens of context.

    Args:
        pe: of the wafer
        work: of the ops, as of a longer sample: sizes count, tokens do not
        users: that decode together
        context: tokens that each of them has behind it

    Example, WSE-2, a product of 8,192 by 8,192 for one user: tiles of 11 x 9 elements, 9 multiply-adds of 11 at 2 + 3
    cycles, and a call of 39. Nine sums go over 750 columns in 33 groups of 23 and back.

    >>> from cstool.model.system import load_system
    >>> found = decode_cycles(Pe(load_system("cs2"), 16), [MatMul(tokens=1, inputs=8192, outputs=8192)], 1, 0)
    >>> found.products, found.sums
    (84, 1948)
    """
    found = DecodeCycles()
    for item in work:
        match item:
            case MatMul():
                found += _product(pe, item, users)
            case Pairs():
                found += _attention(pe, item, users, context)
            case VectorOps():
                elements = ceil_div(users * item.width, pe.system.fabric.width)
                found += DecodeCycles(other=_sustained(pe, pe.vector_cycles(elements, item.forward)))
            case RowSums():
                found += DecodeCycles(sums=mesh_allreduce_cycles(pe, pe.system.fabric.width, users * item.forward))
            case Lookup():
                # The row of each user's token goes from where it is to where the first layer wants it.
                fabric, links = pe.system.fabric, pe.system.links
                way = (fabric.width + fabric.height) * links.hop_cycles + 2 * links.ramp_cycles + READ_CYCLES
                found += DecodeCycles(sums=way + users * int(pe.wavelets(ceil_div(item.width, fabric.width))))
    return found


def _sustained(pe: Pe, cycles: int) -> int:
    return int(ceil_div(1000 * cycles, pe.efficiency))


def tile(pe: Pe, item: MatMul) -> tuple[int, int, int]:
    """Inputs and outputs of a matrix that the fullest PE has, and the PEs that share an output: the fewest elements.

    Of experts, the outputs of all of them.
    """
    fabric = pe.system.fabric
    ways = [
        (int(ceil_div(item.inputs, across)), int(ceil_div(item.outputs, down)), across)
        for across, down in ((fabric.width, fabric.height), (fabric.height, fabric.width))
    ]
    return min(ways, key=lambda way: (way[0] * way[1], way[2]))


def _product(pe: Pe, item: MatMul, users: int) -> DecodeCycles:
    i, o, across = tile(pe, item)
    if item.all_tokens is not None:
        # Each token meets some of the experts; which, differs from user to user.
        o = int(ceil_div(o * item.tokens, item.all_tokens))
    sums = mesh_allreduce_cycles(pe, min(across, item.inputs), users * o)
    return DecodeCycles(products=matvec_cycles(pe, i, o, users), sums=sums)


def _attention(pe: Pe, item: Pairs, users: int, context: int) -> DecodeCycles:
    fabric = pe.system.fabric
    d, keys = int(ceil_div(item.width, fabric.width)), int(ceil_div(context + 1, fabric.height))
    heads = int(ceil_div(d, item.head_width))
    columns = int(ceil_div(item.head_width, d))
    product = users * 2 * int(pair_cycles(pe, keys, d, keys))
    softmax = users * heads * int(pe.vector_cycles(keys, SOFTMAX_OPS))
    # Scores along a head, then maximum, sum and what they weigh along the rows.
    scores = mesh_allreduce_cycles(pe, columns, users * heads * keys)
    per_head, weighed = (mesh_allreduce_cycles(pe, fabric.height, users * each) for each in (heads, d))
    rows = 2 * per_head + weighed
    return DecodeCycles(attention=_sustained(pe, product + softmax), sums=scores + rows)


def prefill_cycles(pe: Pe, work: Sequence[OpWork], prompts: int) -> int:
    """Return what ops take for all tokens of so many prompts, one prompt after the other.

    Args:
        work: of the ops, for the tokens of one prompt
    """
    fabric = pe.system.fabric
    between = [item for item in work if isinstance(item, VectorOps | Lookup)]
    cycles = region_phases(pe, between, fabric.width, fabric.height, needs_delta=False).forward.cycles
    for item in work:
        match item:
            case MatMul():
                cycles += _prompt_product(pe, item)
            case Pairs():
                keys = int(ceil_div(item.pairs, item.tokens))
                # Scores and what they weigh: products of matrices, too, a query with the keys it sees on average.
                cycles += rounds_cycles(pe, item.tokens, item.width, keys)
                cycles += rounds_cycles(pe, item.tokens, keys, item.width)
                heads = int(ceil_div(item.width, item.head_width))
                scores = int(ceil_div(item.pairs * heads, fabric.pes))
                cycles += _sustained(pe, int(pe.vector_cycles(scores, SOFTMAX_OPS)))
                cycles += 2 * mesh_allreduce_cycles(pe, fabric.width, int(ceil_div(item.tokens, fabric.height)) * heads)
            case RowSums():
                sums = int(ceil_div(item.tokens, fabric.height)) * item.forward
                cycles += mesh_allreduce_cycles(pe, fabric.width, sums)
    return prompts * int(cycles)


def _prompt_product(pe: Pe, item: MatMul) -> int:
    """Cycles of a product of all tokens of a prompt: in rounds, or as tokens that follow one another."""
    # PEs that have the busiest expert multiply with the tokens of that; the others wait for them.
    tokens = math.ceil(item.tokens * item.busiest)
    i, o, across = tile(pe, item)
    of_token = matvec_cycles(pe, i, o, 1) + mesh_allreduce_cycles(pe, min(across, item.inputs), o)
    return min(tokens * of_token, rounds_cycles(pe, tokens, item.inputs, item.outputs))


def resident_bytes(pe: Pe, work: Sequence[OpWork], vectors: Sequence[int]) -> int:
    """Size of the weights of ops on the fullest PE [bytes].

    Args:
        vectors: elements of biases and weights of norms
    """
    pes, size = pe.system.fabric.pes, 0
    for item in work:
        if isinstance(item, MatMul):
            i, o, _ = tile(pe, item)
            size += i * o
        elif isinstance(item, Lookup):
            size += int(ceil_div(item.rows * item.width, pes))
    size += sum(int(ceil_div(elements, pes)) for elements in vectors)
    return size * pe.operand_bytes


def cache_bytes(pe: Pe, work: Sequence[OpWork], users: int, context: int) -> int:
    """Size of keys and values on the fullest PE [bytes]: elements over columns, tokens of all users dealt over rows.

    Example, WSE-3: 1,024 elements of keys and as many of values, 2 of each on a PE; 8 users with 2,560 tokens are 18
    tokens to a row.

    >>> from cstool.model.system import load_system
    >>> pairs = Pairs(tokens=1, key_tokens=1, pairs=1, width=4096, kv_width=1024, head_width=128)
    >>> cache_bytes(Pe(load_system("cs3"), 16), [pairs], users=8, context=2560)
    144
    """
    fabric = pe.system.fabric
    tokens = int(ceil_div(users * context, fabric.height))
    return sum(
        2 * int(ceil_div(item.kv_width, fabric.width)) * tokens * pe.operand_bytes
        for item in work
        if isinstance(item, Pairs)
    )


def buffer_bytes(pe: Pe, work: Sequence[OpWork], users: int) -> int:
    """Size of activations and sums on the fullest PE, for the widest op: a token of each user, in and out [bytes]."""
    widest = 0
    for item in work:
        if isinstance(item, MatMul):
            i, o, _ = tile(pe, item)
            widest = max(widest, i + o)
    return 2 * users * widest * SUM_BYTES
