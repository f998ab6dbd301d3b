"""Published all-reduces of a whole wafer beside the closed forms of `perf.collectives`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cstool.model.system import load_system
from cstool.plan.timing.collectives import software_allreduce_cycles, wafer_allreduce_cycles

if TYPE_CHECKING:
    from cstool.plan.estimation.published import Published


def _allreduce_diameters(result: Published) -> tuple[float, str]:
    """An all-reduce of one element over all PEs, over the hops from one corner of the wafer to the other."""
    system = load_system(result.system)
    width, height = system.fabric.width, system.fabric.height
    diameter = (width + height - 2) * system.links.hop_cycles
    cycles = wafer_allreduce_cycles(system.links, width, height, 1)
    library = software_allreduce_cycles(system.links, width, height, 1)
    return cycles / diameter, f"{cycles:,} cycles for {diameter:,} hops; by chains to a corner {library:,}"


REDUCE_QUANTITIES: Mapping[str, Callable[[Published], tuple[float, str]]] = {
    "allreduce_diameters_cycles": _allreduce_diameters
}
"""by `quantity` of perf/published.yaml"""
