"""Sums and broadcasts over a line of PEs, in closed form; the cheapest way to add up is taken.

A wavelet that is added up on its way does not pass a PE in a hop: it goes down the ramp, can be read a cycle later, is
added to the PE's own, goes up the ramp and takes the hop. With ramps of T_R cycles that are 2 T_R + 2 for each PE. A
multicast has one ramp at each end.

- *chain*: each PE adds its own to the elements from its neighbour. The elements follow one another.
- *two phases*: chains of about the square root of the PEs, then a chain of their last PEs, each as many hops apart. The
  second begins when the first has ended.
- *tree*: in each round half of the remaining PEs send all that they have to the other half.

Starts of operations and of tasks are left out: docs/csl/fabric_cycles.md has them beside the simulated fabric.
Numbers of PEs and elements are integers or integer arrays.

Source: Luczynski et al., "Near-Optimal Wafer-Scale Reduce", HPDC '24, arXiv 2404.15888, for these patterns, 2 T_R + 2
and the cost of each; rounded to whole groups here.
"""

import math
from typing import Any

import numpy as np

from cstool.model.system import Links
from cstool.plan.timing.pe import ceil_div, minimum

READ_CYCLES = 1
"""from when a wavelet is down the ramp until it can be read (HPDC '24: the other one of the 2 is the hop)"""
RECONFIGURE_CYCLES = 96
"""to set the routes of one axis anew, at each call of an all-reduce in software, however many PEs there are

Source: 95 to 97 cycles in public measurements of the all-reduce library of the SDK's benchmarks, over rows of PEs.
"""


def chain_cycles(links: Links, pes: Any, elements: Any, apart: Any = 1) -> Any:
    """Return the cycles to add up so many elements of each PE, from neighbour to neighbour.

    Args:
        links: of the fabric
        pes: that add up
        elements: of each, one to a wavelet
        apart: hops from one PE to the next

    Example, WSE-2, ramps of 2 cycles: 16 elements over 8 PEs are behind one another, after 7 x 6 cycles.

    >>> from cstool.model.system import load_system
    >>> chain_cycles(load_system("cs2").links, 8, 16)
    58
    """
    step = 2 * links.ramp_cycles + READ_CYCLES + apart * links.hop_cycles
    return (elements + (pes - 1) * step) * (pes > 1)


def two_phase_cycles(links: Links, pes: Any, elements: Any) -> Any:
    """Return the cycles to add up over chains of about the square root of the PEs, then over their last PEs.

    Example: 16 PEs are 4 chains of 4, 4 + 3 x 6 cycles, and a chain of 4 that are 4 hops apart, 4 + 3 x 9.

    >>> from cstool.model.system import load_system
    >>> two_phase_cycles(load_system("cs2").links, 16, 4)
    53
    """
    size = _square_root(pes - 1) + 1
    groups = ceil_div(pes, size)
    return chain_cycles(links, size, elements) + chain_cycles(links, groups, elements, apart=size)


def tree_cycles(links: Links, pes: Any, elements: Any) -> Any:
    """Return the cycles to add up in rounds, over 1, 2, 4 ... hops.

    Example: 8 PEs, 3 rounds of 16 elements, two ramps and a cycle to read, and 1 + 2 + 4 hops.

    >>> from cstool.model.system import load_system
    >>> tree_cycles(load_system("cs2").links, 8, 16)
    70
    """
    rounds = _bits(pes - 1)
    return rounds * (elements + 2 * links.ramp_cycles + READ_CYCLES) + (pes - 1) * links.hop_cycles


def reduce_cycles(links: Links, pes: Any, elements: Any) -> Any:
    """Return the cycles of the cheapest way to add up so many elements of each PE; none over one PE.

    Of many elements a chain is cheapest, of few a tree; two phases lie between.

    >>> from cstool.model.system import load_system
    >>> [reduce_cycles(load_system("cs2").links, 750, n) for n in (1, 64, 100_000)]  # tree, two phases, chain
    [809, 1148, 104494]
    """
    return minimum(*(way(links, pes, elements) for way in (chain_cycles, two_phase_cycles, tree_cycles)))


def broadcast_cycles(links: Links, pes: Any, elements: Any) -> Any:
    """Return the cycles until the last of so many PEs has read all elements; none for one PE.

    >>> from cstool.model.system import load_system
    >>> broadcast_cycles(load_system("cs2").links, 8, 16)  # 16 + 7 hops + 2 x 2 + 1
    28
    """
    return (elements + (pes - 1) * links.hop_cycles + 2 * links.ramp_cycles + READ_CYCLES) * (pes > 1)


def allreduce_cycles(links: Links, pes: Any, elements: Any) -> Any:
    """Return the cycles until each PE of a line has the sums: added up, then sent back."""
    return reduce_cycles(links, pes, elements) + broadcast_cycles(links, pes, elements)


def wafer_allreduce_cycles(links: Links, width: int, height: int, elements: int) -> int:
    """Return the cycles until each PE of a rectangle has the sums, which meet in its middle.

    Both halves of a row add up towards its middle at once, then both halves of the middle column; there the second
    half's elements come down the same ramp after the first half's. Sums go back the same way. The time for one
    element is little more than the diameter of the rectangle.

    Args:
        links: of the fabric
        width, height: of the rectangle [PEs]
        elements: of each PE, one to a wavelet

    Example, WSE-2, 15 x 1 PEs and one element: 8 PEs on either side with the middle, 3 rounds of 6 and 7 hops, 1 for
    the other side; back 1, 7 hops, two ramps and 1 to read.

    >>> from cstool.model.system import load_system
    >>> wafer_allreduce_cycles(load_system("cs2").links, 15, 1, 1)
    39
    """
    halves = [pes // 2 + 1 for pes in (width, height) if pes > 1]
    second = [elements * (pes > 2) for pes in (width, height) if pes > 1]
    return int(sum(allreduce_cycles(links, half, elements) for half in halves) + sum(second))


def software_allreduce_cycles(links: Links, width: int, height: int, elements: int) -> int:
    """Return the cycles of an all-reduce as the SDK's library has it: chains to a corner, routes set anew each call.

    Its layout is one column after the other from west to east, the last column from north to south, and both
    broadcasts back: benchmark-libs/allreduce of Cerebras/csl-examples. Each axis sets its routes anew.

    >>> from cstool.model.system import load_system
    >>> software_allreduce_cycles(load_system("cs2").links, 8, 4, 16)  # 2 x 96 + 58 + 28 + 34 + 24
    336
    """
    axes = [pes for pes in (width, height) if pes > 1]
    chains = sum(chain_cycles(links, pes, elements) + broadcast_cycles(links, pes, elements) for pes in axes)
    return int(chains) + RECONFIGURE_CYCLES * len(axes)


def _square_root(values: Any) -> Any:
    """Return square roots, rounded down."""
    return np.sqrt(values).astype(np.int64) if isinstance(values, np.ndarray) else math.isqrt(values)


def _bits(values: Any) -> Any:
    """Return the number of bits of each."""
    return np.frexp(values)[1].astype(np.int64) if isinstance(values, np.ndarray) else values.bit_length()
