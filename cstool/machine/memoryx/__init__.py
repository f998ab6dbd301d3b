"""MemoryX: it streams weights, receives gradients and applies the optimizer."""

from cstool.machine.memoryx.memoryx import DENSE, MemoryX

__all__ = ["DENSE", "MemoryX"]
