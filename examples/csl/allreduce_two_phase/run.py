#!/usr/bin/env cs_python
"""The sum over a grid of PEs, at every PE, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, n = (wafer.params[name] for name in ("width", "height", "n"))
values = np.random.default_rng(8).standard_normal((height, width, n)).astype(np.float32)

with wafer:
    wafer.put("values", values)
    wafer.call("allreduce")
    sums = wafer.get("values", (height, width, n))

rows = values[:, -1]
for x in reversed(range(width - 1)):  # the order in which the chains add
    rows = values[:, x] + rows
total = rows[-1]
for y in reversed(range(height - 1)):
    total = rows[y] + total
check(sums, np.broadcast_to(total, sums.shape))
