"""The machine as data: systems and their clusters, read from system files."""

from __future__ import annotations

from cstool.arch.system import Fabric, Links, MemoryXUnit, ProcessingElement, SwarmXUnit, System

__all__ = ["Fabric", "Links", "MemoryXUnit", "ProcessingElement", "SwarmXUnit", "System"]
