"""The machine as data: systems and their clusters, read from system files."""

from __future__ import annotations

from cstool.arch.load import STATUSES, load_system, system_names
from cstool.arch.system import Fabric, Links, MemoryXUnit, ProcessingElement, SwarmXUnit, System

__all__ = [
    "STATUSES",
    "Fabric",
    "Links",
    "MemoryXUnit",
    "ProcessingElement",
    "SwarmXUnit",
    "System",
    "load_system",
    "system_names",
]
