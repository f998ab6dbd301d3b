#!/usr/bin/env cs_python
"""Running sums along a row of PEs, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, n = wafer.params["width"], wafer.params["n"]
values = np.random.default_rng(10).integers(-1000, 1000, (1, width, n)).astype(np.int32)

with wafer:
    wafer.put("values", values)
    wafer.call("scan")
    sums = wafer.get("values", values.shape, np.int32)

check(sums.ravel(), np.cumsum(values.ravel(), dtype=np.int32), picture=sums.ravel(), of="running sums")
