"""Kernels of inference, as measured on a mesh of PEs: sums along a line, a matrix times a vector or a matrix.

They are the kernels of WaferLLM, written in CSL, timed on a WSE-3. Their cycles follow from the numbers of a system
and from three measured overheads beyond the limits of links and datapath:

- *latency*: a hop and an addition on the way take `LATENCY_FACTOR` times the cycles of the links. Over a line of n PEs
  in 2, 4 or 8 groups, each further PE added 5.5, 3.75 and 2.875 cycles to an all-reduce; with 2 cycles for a hop and
  2 x 5 for an addition, the model has 5.5, 3.75 and 2.875.
- *start*: a multiply-add of operands of 16 bits takes 2.9 cycles for 8 elements and 3.0 for one: `MORE_START_CYCLES`
  on top of the start of a vector instruction.
- *calls*: `call_cycles` for a product with a vector, and for each phase of an all-reduce; in a product of matrices, one
  for each element of the summed side and `ROUND_CALLS` for each round.

CS-2 and CS-1 are taken as CS-3. No efficiency is applied: the measured cycles include it.

Source: MeshGEMV and MeshGEMM of He et al., OSDI '25, arXiv 2502.04563 (MeshInfra/WaferLLM); cycles on a WSE-3 by
FxPiGaAo/WaferLLM, MeshGEMV/WSE-3 and MeshGEMM/WSE-3, wse_result.json (2025-11).
"""

from functools import lru_cache
from math import isqrt

from cstool.model.system import Links
from cstool.plan.timing.collectives import READ_CYCLES
from cstool.plan.timing.pe import Pe, ceil_div

LATENCY_FACTOR = 2
MORE_START_CYCLES = 1
ROUND_CALLS = 3
"""calls per round: a shift of each operand, and the start of the next round"""


def multiply_add_cycles(pe: Pe, length: int) -> int:
    """Return the cycles of one multiply-add of a vector with a scalar.

    Example, WSE-3: 8 elements of 16 bits.

    >>> from cstool.model.system import load_system
    >>> multiply_add_cycles(Pe(load_system("cs3"), 16), 8)
    3
    """
    return int(pe.axpy_cycles(length)) + MORE_START_CYCLES * (pe.operand_bytes == 2)


def matvec_cycles(pe: Pe, i: int, o: int, users: int) -> int:
    """Return the cycles of a tile of i x o weights times a vector of each user, one user after the other.

    >>> from cstool.model.system import load_system
    >>> matvec_cycles(Pe(load_system("cs3"), 16), 8, 1, users=2)  # 39 + 2 x 3
    45
    """
    once = min(i * multiply_add_cycles(pe, o), o * multiply_add_cycles(pe, i))
    return pe.system.pe.call_cycles + users * once


def mesh_allreduce_cycles(pe: Pe, pes: int, elements: int, groups: int | None = None) -> int:
    """Return the cycles of an all-reduce over the PEs of a line; 0 for one PE.

    Each group adds up towards its middle, the middles towards the middle of the line, and the sums go back to all PEs.
    Sums are as wide as operands.

    Args:
        pe: kind of the PEs
        pes: number of PEs in the line
        elements: number of elements of each PE
        groups: number of groups of the line; None for the fastest number

    Example, WSE-3: 144 PEs in 8 groups of 18, one element. 144 + 18 hops at 2, 9 + 4 additions at 10, three calls and
    wavelets. It was measured at 602 with a product of 42.

    >>> from cstool.model.system import load_system
    >>> mesh_allreduce_cycles(Pe(load_system("cs3"), 16), 144, 1, groups=8)
    574
    """
    if pes < 2 or not elements:
        return 0
    call, wavelets = pe.system.pe.call_cycles, int(pe.wavelets(elements))
    if groups is None:
        return _fastest(pe.system.links, call, pes, wavelets)
    return _in_groups(pe.system.links, call, pes, wavelets, groups)


@lru_cache(maxsize=1 << 14)
def _fastest(links: Links, call: int, pes: int, wavelets: int) -> int:
    # More groups than twice the square root cost more than they save.
    return min(_in_groups(links, call, pes, wavelets, groups) for groups in range(1, min(pes, 2 * isqrt(pes)) + 1))


def _in_groups(links: Links, call: int, pes: int, wavelets: int, groups: int) -> int:
    size, is_one = int(ceil_div(pes, groups)), groups == 1
    phases = 2 if is_one else 3
    hops = pes + (0 if is_one else size)
    additions = size // 2 + groups // 2
    latency = hops * links.hop_cycles + additions * (2 * links.ramp_cycles + READ_CYCLES)
    return phases * (call + wavelets) + LATENCY_FACTOR * latency


def rounds_cycles(pe: Pe, tokens: int, inputs: int, outputs: int) -> int:
    """Return the cycles of a product of two matrices that are shifted past each other, (tokens, inputs) x W.

    Tokens are dealt over rows and outputs over columns, or the other way round. There is a round for each PE of the
    longer side. In each, a PE multiplies its tiles of the two matrices, k inputs deep, and passes both on: k calls, and
    a multiply-add of the tokens for each of k x n weights.

    Args:
        pe: kind of the PEs; its system has the fabric
        tokens, inputs, outputs: of the product

    Example, WSE-3: 5,760 tokens by 5,760 x 5,760 on 720 x 720 PEs are tiles of 8 x 8; 720 rounds of 3 calls and 8 times
    a call and 8 multiply-adds of 8. It was measured at 480,748.

    >>> from dataclasses import replace
    >>> from cstool.model.system import Fabric, load_system
    >>> rounds_cycles(Pe(replace(load_system("cs3"), fabric=Fabric(720, 720)), 16), 5760, 5760, 5760)
    447120
    """
    fabric, call = pe.system.fabric, pe.system.pe.call_cycles
    rounds = max(fabric.width, fabric.height)
    k = int(ceil_div(inputs, rounds))
    ways = ((fabric.height, fabric.width), (fabric.width, fabric.height))
    tiles = [(int(ceil_div(tokens, down)), int(ceil_div(outputs, across))) for down, across in ways]
    work = min(k * (call + n * multiply_add_cycles(pe, m)) for m, n in tiles)
    return rounds * (ROUND_CALLS * call + work)
