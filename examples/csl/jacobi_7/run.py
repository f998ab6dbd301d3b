#!/usr/bin/env cs_python
"""Poisson's equation by Jacobi's method on a 7-point stencil, z in memory, beside NumPy.

Source: C. G. J. Jacobi, Astronomische Nachrichten 22, 1845; columns of points on PEs as in Rocki et al., SC 2020
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, n, steps = (wafer.params[key] for key in ("width", "height", "n", "steps"))
f = np.zeros((height, width, n), np.float32)
f[height // 2, width // 2, n // 3] = 6.0  # a charge, and its opposite
f[height // 3, width // 3, n - 1 - n // 3] -= 6.0

with wafer:
    wafer.put("f", f)
    wafer.call("run")
    u = wafer.get("u", (height, width, n + 2))[:, :, 1:-1]
    cycles = wafer.cycles() / steps

grid = np.zeros((height + 2, width + 2, n + 2))
for _ in range(steps):
    neighbours = grid[1:-1, 1:-1, :-2] + grid[1:-1, 1:-1, 2:] + grid[1:-1, :-2, 1:-1] + grid[1:-1, 2:, 1:-1]
    neighbours += grid[:-2, 1:-1, 1:-1] + grid[2:, 1:-1, 1:-1]
    grid[1:-1, 1:-1, 1:-1] = (neighbours + f) / 6
slice_ = u[height // 2].T
check(
    u, grid[1:-1, 1:-1, 1:-1], 1e-6,
    picture=slice_, of="u in the middle row of PEs, z upward", upward=True, cycles=cycles, per="an iteration",
)  # fmt: skip
