#!/usr/bin/env cs_python
"""The sum over each row of PEs, beside NumPy.

Source: chain of Luczynski et al., Near-optimal wafer-scale reduce, HPDC 2024
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, n = (wafer.params[name] for name in ("width", "height", "n"))
values = np.random.default_rng(6).standard_normal((height, width, n)).astype(np.float32)

with wafer:
    wafer.put("values", values)
    wafer.call("reduce")
    sums = wafer.get("values", (height, 1, n))

expected = values[:, -1]
for x in reversed(range(width - 1)):  # the order in which the chain adds
    expected = values[:, x] + expected
check(sums[:, 0], expected)
