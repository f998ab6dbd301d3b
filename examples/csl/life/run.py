#!/usr/bin/env cs_python
"""The Game of Life on a grid of PEs, beside NumPy.

Source: M. Gardner, Mathematical Games, Scientific American, October 1970
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, rows, columns, steps = (wafer.params[key] for key in ("width", "height", "rows", "columns", "steps"))
cells = np.random.default_rng(13).integers(0, 2, (height * rows, width * columns)).astype(np.uint32)

tiles = np.zeros((height, width, rows + 2, columns + 2), np.uint32)
tiles[:, :, 1:-1, 1:-1] = cells.reshape(height, rows, width, columns).transpose(0, 2, 1, 3)
with wafer:
    wafer.put("tile", tiles.reshape(height, width, -1))
    wafer.call("run")
    tiles = wafer.get("tile", (height, width, tiles[0, 0].size), np.uint32).reshape(tiles.shape)
result = tiles[:, :, 1:-1, 1:-1].transpose(0, 2, 1, 3).reshape(cells.shape)

for _ in range(steps):
    field = np.pad(cells, 1)
    i, j = cells.shape
    around = sum(field[di : i + di, dj : j + dj] for di in range(3) for dj in range(3) if (di, dj) != (1, 1))
    cells = ((around == 3) | ((around == 2) & (cells == 1))).astype(np.uint32)
check(result, cells, picture=result, of="alive cells at the end")
