#!/usr/bin/env cs_python
"""The sum over a row of PEs by a binary tree, at every PE, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer

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
np.testing.assert_array_equal(sums, np.broadcast_to(total, sums.shape))
print("SUCCESS")
