#!/usr/bin/env cs_python
"""y = A x + b on one PE, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
M, N = wafer.params["M"], wafer.params["N"]
random = np.random.default_rng(2)
A = random.standard_normal((M, N)).astype(np.float32)
x = random.standard_normal(N).astype(np.float32)
b = random.standard_normal(M).astype(np.float32)

with wafer:
    wafer.put("A", A.reshape(1, 1, -1))
    wafer.put("x", x.reshape(1, 1, -1))
    wafer.put("y", b.reshape(1, 1, -1))
    wafer.call("gemv")
    y = wafer.get("y", (1, 1, M))

check(y.ravel(), A.astype(float) @ x + b, 1e-5 * N, picture=y.ravel(), of="y")
