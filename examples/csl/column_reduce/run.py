#!/usr/bin/env cs_python
"""The sum over each column of PEs, beside NumPy.

Source: chain of Luczynski et al., Near-optimal wafer-scale reduce, HPDC 2024
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, n = (wafer.params[name] for name in ("width", "height", "n"))
values = np.random.default_rng(7).standard_normal((height, width, n)).astype(np.float32)

with wafer:
    wafer.put("values", values)
    wafer.call("reduce")
    sums = wafer.get("values", (1, width, n))

expected = values[-1]
for y in reversed(range(height - 1)):  # the order in which the chain adds
    expected = values[y] + expected
check(sums[0], expected)
