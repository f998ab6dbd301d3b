"""MemoryX: it streams weights, receives gradients and applies the optimizer."""

from cstool.training.machine.memoryx.memoryx import MemoryX
