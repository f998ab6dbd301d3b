"""The cut of a global batch into grains, their dealing to systems, and the number of lanes worth having.

The cut is a function of the model and the batch alone: never of the number of systems, cores or lanes.
So the bits of a run do not depend on these.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from cstool.foundation.errors import ClusterError
from cstool.model.batch_split import divisors, even_parts, nearest_divisors
from cstool.model.ir import Graph, matrices_of

GRAIN_TOKENS = 512
"""tokens of a grain at most, where a sample is not longer: enough for an efficient GEMM"""
FEWEST_GRAINS = 4
"""grains that a batch is cut into at least, where it has the samples: work for the cores"""
FEWEST_TOKENS = 24
"""tokens of a grain at least, of matrices that no cache holds, where there are two such grains: each grain reads such a
matrix from main memory and writes a gradient of its size (measured: a step of 24 matrices of 2048 x 2048 on a batch
of 64, MemoryX in a file, takes 1.5 s in grains of 16 and 1.25 s in grains of 32)"""
CACHE_BYTES = 2**21
"""a core's own cache, about [bytes]"""
LANE_WORTH_FLOPS = 3_000_000
"""arithmetic of a mean matrix op on one grain from which a second lane pays: below it lanes lose their gain, by waking
each other (measured on two cores of an AMD Zen 4: at 4.7 million a step takes 1.5 ms with two lanes and 1.9 with one,
at 1.9 million 1.1 with either)"""


def grain_samples(graph: Graph, batch_size: int) -> int:
    """Samples of a grain: the largest divisor of the batch within the limits above."""
    tokens = graph.tokens
    fewest = min(batch_size, FEWEST_GRAINS)
    if 4 * _mean_matrix(graph) > CACHE_BYTES:
        fewest = min(fewest, max(2, batch_size * tokens // FEWEST_TOKENS))
    fitting = [
        samples
        for samples in range(1, min(batch_size, GRAIN_TOKENS // tokens) + 1)
        if batch_size % samples == 0 and batch_size // samples >= fewest
    ]
    return max(fitting, default=1)


def check_systems(num_csx: int, batch_size: int, where: str) -> None:
    """Check that the samples of a batch divide evenly over the systems, as they do on the modelled cluster.

    Args:
        where: the dataloader whose batch it is

    Raises:
        ClusterError: naming the nearest counts that do
    """
    if batch_size % num_csx == 0:
        return
    raise ClusterError(
        f"num_csx: must divide the batch_size ({batch_size}) of {where}, got {num_csx}",
        f"{nearest_divisors(batch_size, num_csx)}; all that do: {', '.join(map(str, divisors(batch_size)))}",
    )


def grain_count(graph: Graph, batch_size: int) -> int:
    """Grains of a batch."""
    return batch_size // grain_samples(graph, batch_size)


def check_ranks(ranks: int, num_csx: int) -> None:
    """Check that each process of a run has a system to be.

    Raises:
        ClusterError: one would have none
    """
    if ranks > num_csx:
        raise ClusterError(
            f"num_csx: must be at least the number of processes ({ranks}), got {num_csx}",
            f"--num_csx {ranks}, or fewer processes",
        )


def check_grains(ranks: int, grains: int, where: str) -> None:
    """Check that each process of a run has a grain of a batch to work on.

    Args:
        where: the dataloader whose batch it is

    Raises:
        ClusterError: one would have none
    """
    if ranks > grains:
        raise ClusterError(
            f"{where}: must have at least as many grains to a batch as there are processes ({ranks}), got {grains}",
            "a larger batch_size, or fewer processes",
        )


@dataclass(frozen=True)
class Deal:
    """Which grains of a batch a system works on, wave by wave.

    A wave is a range of grains, so that most gradients find their siblings within it; the share of a system is a range
    of its wave. Waves differ by at most one grain, and so do the shares of a wave: some are empty where it has fewer
    grains than there are systems.

    Args:
        grains: of a batch
        num_csx: number of systems
        waves: at most as many as grains
    """

    grains: int
    num_csx: int
    waves: int

    def shares(self, wave: int) -> list[Sequence[int]]:
        """The numbers of the grains of a wave, from 0, by system."""
        begin, end = (self.grains * number // self.waves for number in (wave, wave + 1))
        return even_parts(range(begin, end), self.num_csx)

    @property
    def slots(self) -> list[int]:
        """By system, the most grains that it gets in any wave.

        Systems may get theirs in different waves, so together these can be more than the grains of a wave.
        """
        # The first wave is of the smallest size, the last of the largest, and the size settles the shares.
        return [max(map(len, shares)) for shares in zip(self.shares(0), self.shares(self.waves - 1), strict=True)]


def deal_grains(grains: int, num_csx: int, rooms: Sequence[int]) -> Deal | None:
    """Deal the grains of a batch in as few waves as the memory allows; None where one grain at a time is too much.

    Args:
        rooms: slots that the systems of a rank may have together, by rank; systems are dealt to ranks in order
    """
    deals = (Deal(grains, num_csx, waves) for waves in range(math.ceil(grains / max(1, sum(rooms))), grains + 1))
    return next((deal for deal in deals if _fits(deal, rooms)), None)


def _fits(deal: Deal, rooms: Sequence[int]) -> bool:
    by_rank = even_parts(deal.slots, len(rooms))
    return all(sum(slots) <= room for slots, room in zip(by_rank, rooms, strict=True))


def lanes_for(graph: Graph, grain: int, grains: int, ranks: int = 1) -> int:
    """Number of lanes: one per core, but one only where the ops are too small to share.

    Args:
        grain: samples of a grain
        grains: number of grains to work on
        ranks: processes that share the cores
    """
    mean_flops = 2 * grain * graph.tokens * _mean_matrix(graph)
    return 1 if mean_flops < LANE_WORTH_FLOPS else min(cores_of_rank(ranks), max(1, grains))


def cores_of_rank(ranks: int) -> int:
    """Cores for each of a number of processes that share them."""
    return max(1, available_cores() // ranks)


def _mean_matrix(graph: Graph) -> float:
    """Mean number of elements of a model's matrices."""
    matrices = {matrix for op in graph.ops for matrix in matrices_of(op)}
    return fmean(weight.size for weight in graph.weights.values() if weight.name in matrices)


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
