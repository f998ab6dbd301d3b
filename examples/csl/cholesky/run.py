#!/usr/bin/env cs_python
"""The Cholesky factor of a matrix in tiles on a triangle of PEs, beside NumPy.

Source: Golub and Van Loan, Matrix Computations, section 4.2 (outer products, by blocks)
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
P, nt = wafer.params["P"], wafer.params["nt"]
N = P * nt
angle = 2 * np.pi * np.arange(N) / N
chord = 2 * np.sin(np.abs(np.subtract.outer(angle, angle)) / 2)
A = np.exp(-2 * chord).astype(np.float32)  # covariances of a field at points on a circle

tiles = A.reshape(P, nt, P, nt).transpose(0, 2, 3, 1).reshape(P, P, -1)  # each column by column
with wafer:
    wafer.put("A", tiles)
    wafer.call("factorize")
    L = wafer.get("A", tiles.shape)
L = np.tril(L.reshape(P, P, nt, nt).transpose(0, 3, 1, 2).reshape(N, N))

check(L, np.linalg.cholesky(A.astype(float)), 1e-5, picture=L, of="the factor L")
