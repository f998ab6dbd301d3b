#!/usr/bin/env cs_python
"""A 5-point stencil on a grid of PEs, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, rows, columns, steps = (wafer.params[key] for key in ("width", "height", "rows", "columns", "steps"))
random = np.random.default_rng(12)
field = np.zeros((height * rows + 2, width * columns + 2), np.float32)
field[1:-1, 1:-1] = random.standard_normal((height * rows, width * columns)).astype(np.float32)

tiles = np.zeros((height, width, rows + 2, columns + 2), np.float32)
tiles[:, :, 1:-1, 1:-1] = field[1:-1, 1:-1].reshape(height, rows, width, columns).transpose(0, 2, 1, 3)
with wafer:
    wafer.put("tile", tiles.reshape(height, width, -1))
    wafer.call("run")
    tiles = wafer.get("tile", (height, width, tiles[0, 0].size)).reshape(tiles.shape)
result = tiles[:, :, 1:-1, 1:-1].transpose(0, 2, 1, 3).reshape(height * rows, width * columns)

for _ in range(steps):
    inner = ((field[:-2, 1:-1] + field[2:, 1:-1]) + field[1:-1, :-2]) + field[1:-1, 2:]
    field[1:-1, 1:-1] = inner * np.float32(0.25)
check(result, field[1:-1, 1:-1], picture=result, of="the grid after the last step")
