#!/usr/bin/env cs_python
"""The Mandelbrot set on a grid of PEs, beside NumPy.

Source: Mandelbrot, Fractal aspects of the iteration of z -> lambda z (1 - z), 1980
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, rows, columns, limit = (wafer.params[key] for key in ("width", "height", "rows", "columns", "limit"))
step = np.float32(2.5 / (height * rows))
corners = np.zeros((height, width, 2), np.float32)
corners[..., 0] = np.float32(-0.6) + step * (np.arange(width) - width / 2) * columns
corners[..., 1] = step * ((height / 2 - np.arange(height)) * rows)[:, None]

with wafer:
    wafer.put("corner", corners)
    wafer.call("run", step)
    turns = wafer.get("turns", (height, width, rows * columns), np.uint16)
turns = turns.reshape(height, width, rows, columns).transpose(0, 2, 1, 3).reshape(height * rows, -1)

i, j = np.arange(rows, dtype=np.float32), np.arange(columns, dtype=np.float32)
real = (corners[0, :, :1] + step * j).reshape(1, -1)
imag = (corners[:, 0, 1:] - step * i).reshape(-1, 1)
x, y, expected = np.zeros(turns.shape, np.float32), np.zeros(turns.shape, np.float32), np.zeros(turns.shape, int)
inside = np.ones(turns.shape, bool)
for _ in range(limit):  # in float32, so points at the rim fall on the same side
    inside &= x * x + y * y <= 4
    expected += inside
    x, y = np.where(inside, (x * x - y * y) + real, x), np.where(inside, (2 * x) * y + imag, y)
check(turns, expected, picture=turns, of="turns until a point is far away")
