#!/usr/bin/env cs_python
"""y = A x + b with the columns of A on a row of PEs, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, M, N = (wafer.params[name] for name in ("width", "M", "N"))
random = np.random.default_rng(3)
A = random.standard_normal((M, N)).astype(np.float32)
x = random.standard_normal(N).astype(np.float32)
b = random.standard_normal(M).astype(np.float32)

with wafer:
    wafer.put("A", A.T.reshape(1, width, -1))
    wafer.put("x", x.reshape(1, width, -1))
    wafer.put("y", b.reshape(1, 1, -1))
    wafer.call("gemv")
    y = wafer.get("y", (1, 1, M), at=(width - 1, 0))

check(y.ravel(), A.astype(float) @ x + b, 1e-5 * N, picture=y.ravel(), of="y")
