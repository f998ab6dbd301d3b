#!/usr/bin/env cs_python
"""y = A x + b on a grid of PEs, beside NumPy."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, M, N = (wafer.params[name] for name in ("width", "height", "M", "N"))
rows, columns = M // height, N // width
random = np.random.default_rng(5)
A = random.standard_normal((M, N)).astype(np.float32)
x = random.standard_normal(N).astype(np.float32)
b = random.standard_normal(M).astype(np.float32)

with wafer:
    wafer.put("A", A.reshape(height, rows, width, columns).transpose(0, 2, 3, 1).reshape(height, width, -1))
    wafer.put("x", x.reshape(1, width, columns))
    wafer.put("y", b.reshape(height, 1, rows))
    wafer.call("gemv")
    y = wafer.get("y", (height, 1, rows), at=(width - 1, 0))

check(y.ravel(), A.astype(float) @ x + b, 1e-5 * N, picture=y.ravel(), of="y")
