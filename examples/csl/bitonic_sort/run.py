#!/usr/bin/env cs_python
"""A bitonic sort along a row of PEs, beside NumPy.

Source: K. E. Batcher, Sorting networks and their applications, AFIPS 1968
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
levels, n = wafer.params["levels"], wafer.params["n"]
keys = np.random.default_rng(15).integers(-1000, 1000, (1, 1 << levels, n)).astype(np.int32)

with wafer:
    wafer.put("keys", keys)
    wafer.call("sort")
    result = wafer.get("keys", keys.shape, np.int32)

check(result.ravel(), np.sort(keys.ravel()), picture=result.ravel(), of="sorted numbers")
