"""Inference: weights stay on the wafer, and the tokens of users stream past them.

Each layer lies on all W x H PEs of its wafer. Of each matrix, a PE has i = ceil(inputs / W) inputs and
o = ceil(outputs / H) outputs, or W and H swapped. Layers follow one another, on the fewest wafers that hold them.

- *decode*: a token of each user meets all matrices. A product is i multiply-adds of length o for each user. Then the o
  sums are reduced along the PEs that share them and sent back, for all users together, as inputs of the next product.
  A PE computes little for a token; the sums, over hundreds of PEs, are most of the time.
- *attention*: keys and values stay on the PEs that made them: elements over columns, tokens of all users over rows. A
  PE has d elements of a token's queries and n of the keys: two products of n x d. Scores are partial sums where a head
  spans several columns; maximum and sum of the softmax, and the weighted values, are sums along the rows.
- *prefill*: each product is of two matrices that are shifted past each other; with few tokens, one token after the
  other. Work between products is as in pipelined mode (`cstool.plan.timing.region`).

Products and sums are timed by `cstool.plan.timing.mesh`, as measured. Attention and element-wise work were not
measured; they have the efficiency of training.

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
    """Cycles of a decoding step, by part; the parts follow one another.

    Args:
        products: with weights, of the busiest PE
        attention: of the busiest PE, at its efficiency: queries with keys and values, softmax included
        other: of the busiest PE, at its efficiency: element-wise work
        sums: reductions over PEs, there and back, and transfers to the farthest PE
    """

    products: int = 0
    attention: int = 0
    other: int = 0
    sums: int = 0

    def __add__(self, more: "DecodeCycles") -> "DecodeCycles":
        """Return the cycles of both, one after the other."""
        return DecodeCycles(
            self.products + more.products,
            self.attention + more.attention,
            self.other + more.other,
            self.sums + more.sums,
        )

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return self.products + self.attention + self.other + self.sums


def decode_cycles(pe: Pe, work: Sequence[OpWork], users: int, context: int) -> DecodeCycles:
    """Return the cycles of ops for one token of each user.

    Args:
        pe: of the wafer
        work: of the ops; its sizes count, its numbers of tokens do not
        users: number of users that decode together
        context: number of earlier tokens of each user

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
                # The row of each user's token goes from its place to the first layer.
                fabric, links = pe.system.fabric, pe.system.links
                way = (fabric.width + fabric.height) * links.hop_cycles + 2 * links.ramp_cycles + READ_CYCLES
                found += DecodeCycles(sums=way + users * int(pe.wavelets(ceil_div(item.width, fabric.width))))
    return found


def _sustained(pe: Pe, cycles: int) -> int:
    return int(ceil_div(1000 * cycles, pe.efficiency))


def tile(pe: Pe, item: MatMul) -> tuple[int, int, int]:
    """Inputs and outputs of a matrix on the fullest PE, and the number of PEs per output, for the smallest tile.

    Outputs are summed over all experts.
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
        # Each token meets some of the experts, which differ from user to user.
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
    # Scores along a head, then maximum, sum and weighted values along the rows.
    scores = mesh_allreduce_cycles(pe, columns, users * heads * keys)
    per_head, weighed = (mesh_allreduce_cycles(pe, fabric.height, users * each) for each in (heads, d))
    rows = 2 * per_head + weighed
    return DecodeCycles(attention=_sustained(pe, product + softmax), sums=scores + rows)


def prefill_cycles(pe: Pe, work: Sequence[OpWork], prompts: int) -> int:
    """Return the cycles of ops for all tokens of a number of prompts, one prompt after the other.

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
                # Scores and weighted values are products of matrices, too: of a query with its mean number of keys.
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
    """Cycles of a product of all tokens of a prompt: the faster of rounds, and one token after the other."""
    # PEs with the busiest expert multiply with all of its tokens; the others wait for them.
    tokens = math.ceil(item.tokens * item.busiest)
    i, o, across = tile(pe, item)
    of_token = matvec_cycles(pe, i, o, 1) + mesh_allreduce_cycles(pe, min(across, item.inputs), o)
    return min(tokens * of_token, rounds_cycles(pe, tokens, item.inputs, item.outputs))


def resident_bytes(pe: Pe, work: Sequence[OpWork], vectors: Sequence[int]) -> int:
    """Size of the weights of ops on the fullest PE [bytes].

    Args:
        vectors: sizes of biases and of weights of norms
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
    """Size of keys and values on the fullest PE [bytes]: elements over columns, tokens of all users over rows.

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
