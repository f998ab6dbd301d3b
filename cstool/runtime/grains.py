"""How a global batch is cut into grains, and how many lanes are worth having.

The cut is a function of the params and the length of a sample alone: never of the number of systems, cores or lanes.
So the bits of a run do not depend on these.
"""

from __future__ import annotations

import os

from cstool.divisors import divisors, nearest_divisors
from cstool.errors import ClusterError
from cstool.ir import Graph

GRAIN_TOKENS = 512
"""tokens of a grain at most, where a sample is not longer: enough for an efficient GEMM"""
FEWEST_GRAINS = 4
"""grains that a batch is cut into at least, where it has the samples: work for the cores"""
LANE_WORTH_FLOPS = 4_000_000
"""arithmetic of a mean matrix op on one grain from which a second lane pays (measured: below it, threads lose)"""


def grain_samples(batch_size: int, sequence: int) -> int:
    """Return the samples of a grain: the largest divisor of the batch that keeps within the two limits above."""
    fewest = min(batch_size, FEWEST_GRAINS)
    fitting = [
        samples
        for samples in range(1, min(batch_size, GRAIN_TOKENS // sequence) + 1)
        if batch_size % samples == 0 and batch_size // samples >= fewest
    ]
    return max(fitting, default=1)


def check_systems(num_csx: int, batch_size: int, grain: int, where: str) -> None:
    """Check that the grains of a batch divide evenly over the systems.

    Raises:
        ClusterError: naming the nearest counts that do
    """
    grains = batch_size // grain
    if grains % num_csx == 0:
        return
    raise ClusterError(
        f"num_csx: must divide the {grains} grains of a batch of {where} "
        f"(batch_size {batch_size}, {grain} to a grain), got {num_csx}",
        f"{nearest_divisors(grains, num_csx)}; all that do: {', '.join(map(str, divisors(grains)))}",
    )


def lanes_for(graph: Graph, grain: int, sequence: int, grains: int) -> int:
    """Return how many lanes to use: one per core, but one only where the ops are too small to share."""
    matrices = [weight.size for weight in graph.weights.values() if len(weight.shape) > 1]
    mean_flops = 2 * grain * sequence * sum(matrices) / len(matrices)
    return 1 if mean_flops < LANE_WORTH_FLOPS else max(1, min(available_cores(), grains))


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
