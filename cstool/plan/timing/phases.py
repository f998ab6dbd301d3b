"""Cycles of the phases of a kernel, each the largest of its limits."""

from dataclasses import dataclass
from typing import Any

from cstool.model.ir import KernelCycles, PhaseCycles
from cstool.plan.timing.pe import ceil_div, maximum


@dataclass
class Limits:
    """Cycles of one phase by limit, added up over the ops of a kernel. Numbers or integer arrays.

    Args:
        efficiency: of the PEs, in thousandths: `compute` is divided by it in the end
        compute, link, ingress, egress: as of `PhaseCycles`
        latency: of the way along a row and back before the op goes on

    >>> Limits(efficiency=500, compute=3, link=5, latency=2).cycles
    8
    """

    efficiency: int = 1000
    compute: Any = 0
    link: Any = 0
    ingress: Any = 0
    egress: Any = 0
    latency: Any = 0

    def add(self, compute: Any = 0, link: Any = 0, ingress: Any = 0, egress: Any = 0, latency: Any = 0) -> None:
        """Add the cycles of one op."""
        self.compute = self.compute + compute
        self.link = self.link + link
        self.ingress = self.ingress + ingress
        self.egress = self.egress + egress
        self.latency = self.latency + latency

    @property
    def compute_cycles(self) -> Any:
        """Cycles of `compute` at the efficiency of the PEs."""
        return ceil_div(self.compute * 1000, self.efficiency)

    @property
    def cycles(self) -> Any:
        """The four run beside each other: the largest counts; latencies come on top."""
        return maximum(self.compute_cycles, self.link, self.ingress, self.egress) + self.latency

    def total(self, latency_cycles: Any, on_fabric: bool = False) -> Any:
        """Return the cycles, `latency_cycles` more where there is work at all.

        Args:
            latency_cycles: of a phase
            on_fabric: whether the links onto and off the wafer count as without limit
        """
        there = (self.compute + self.link + self.ingress + self.egress) > 0
        cycles = maximum(self.compute_cycles, self.link) + self.latency if on_fabric else self.cycles
        return cycles + latency_cycles * there

    def phase(self, latency_cycles: int = 0) -> PhaseCycles:
        """Return plain numbers; `latency_cycles` more where there is work at all."""
        compute, link, ingress, egress = map(int, (self.compute_cycles, self.link, self.ingress, self.egress))
        latency = int(self.latency) + (latency_cycles if compute or link or ingress or egress else 0)
        return PhaseCycles(compute, link, ingress, egress, latency)


class Phases:
    """The limits of all phases of a kernel, at an efficiency of the PEs in thousandths; nothing to do at first."""

    def __init__(self, efficiency: int = 1000) -> None:
        self.forward, self.delta, self.gradient = (Limits(efficiency) for _ in range(3))
        self.all = self.forward, self.delta, self.gradient

    def forward_alone(self) -> "Phases":
        """Return the same of a kernel that never runs backward."""
        found = Phases(self.forward.efficiency)
        found.forward = self.forward
        found.all = found.forward, found.delta, found.gradient
        return found

    def total(self, recomputes: int = 0) -> Any:
        """Return the cycles of all phases, forward so many times more."""
        return sum(limits.cycles for limits in self.all) + recomputes * self.forward.cycles

    def kernel_cycles(self, recomputes: int = 0, latency_cycles: int = 0) -> KernelCycles:
        """Return plain numbers."""
        forward, delta, gradient = (limits.phase(latency_cycles) for limits in self.all)
        return KernelCycles(forward, delta, gradient, recomputes)
