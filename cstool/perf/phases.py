"""Cycles of the phases of a kernel, each the largest of its limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cstool.ir import KernelCycles, PhaseCycles
from cstool.perf.pe import maximum

PHASES = ("forward", "delta", "gradient")


@dataclass
class Limits:
    """Cycles of one phase by limit, added up over the ops of a kernel. Numbers or integer arrays.

    Args:
        compute: of the datapath and memory ports of the busiest PE
        link: of the busiest link between PEs
        ingress: of the links onto and off the wafer
    """

    compute: Any = 0
    link: Any = 0
    ingress: Any = 0

    def add(self, compute: Any = 0, link: Any = 0, ingress: Any = 0) -> None:
        """Add what one op takes."""
        self.compute = self.compute + compute
        self.link = self.link + link
        self.ingress = self.ingress + ingress

    @property
    def cycles(self) -> Any:
        """The three run beside each other: the largest counts."""
        return maximum(self.compute, self.link, self.ingress)

    def phase(self, latency_cycles: int = 0) -> PhaseCycles:
        """Return plain numbers, with the name of the limit that won."""
        limits = {"compute": int(self.compute), "link": int(self.link), "ingress": int(self.ingress)}
        bound = max(limits, key=lambda name: limits[name])
        return PhaseCycles(limits[bound] + (latency_cycles if limits[bound] else 0), bound)


@dataclass
class Phases:
    """The limits of all phases of a kernel."""

    forward: Limits = field(default_factory=Limits)
    delta: Limits = field(default_factory=Limits)
    gradient: Limits = field(default_factory=Limits)

    @property
    def all(self) -> Iterable[Limits]:
        """Forward, delta, gradient."""
        return self.forward, self.delta, self.gradient

    def total(self, recomputes: int = 0) -> Any:
        """Return the cycles of all phases, forward so many times more."""
        return sum(limits.cycles for limits in self.all) + recomputes * self.forward.cycles

    def kernel_cycles(self, recomputes: int = 0, latency_cycles: int = 0) -> KernelCycles:
        """Return plain numbers."""
        forward, delta, gradient = (limits.phase(latency_cycles) for limits in self.all)
        return KernelCycles(forward, delta, gradient, recomputes * forward.cycles)
