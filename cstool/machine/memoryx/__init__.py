"""MemoryX: it streams weights, receives gradients and applies the optimizer."""

from cstool.machine.memoryx.memoryx import MemoryX
