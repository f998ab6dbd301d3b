#!/usr/bin/env cs_python
"""The sum over a row of PEs by a binary tree, at every PE, beside NumPy.

Source: tree of Luczynski et al., Near-optimal wafer-scale reduce, HPDC 2024
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
levels, n = wafer.params["levels"], wafer.params["n"]
values = np.random.default_rng(9).standard_normal((1, 1 << levels, n)).astype(np.float32)

with wafer:
    wafer.put("values", values)
    wafer.call("allreduce")
    sums = wafer.get("values", values.shape)

total = values
while total.shape[1] > 1:  # the order in which the tree adds
    total = total[:, 0::2] + total[:, 1::2]
check(sums, np.broadcast_to(total, sums.shape))
