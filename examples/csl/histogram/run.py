#!/usr/bin/env cs_python
"""A histogram over a row of PEs, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, n, bins = (wafer.params[name] for name in ("width", "n", "bins"))
values = np.random.default_rng(11).normal(bins / 2, bins / 6, (1, width, n)).clip(0, bins - 1).astype(np.uint16)

with wafer:
    wafer.put("values", values)
    wafer.call("count")
    counts = wafer.get("counts", (1, 1, bins), np.uint16)

check(counts.ravel(), np.bincount(values.ravel(), minlength=bins), picture=counts.ravel(), of="values in a bin")
