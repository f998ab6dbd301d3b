#!/usr/bin/env cs_python
"""C = A B on a square of PEs (SUMMA), beside NumPy.

Source: R. A. van de Geijn and J. Watts, SUMMA: Scalable universal matrix multiplication algorithm, 1997
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
P, Mt, Kt, Nt = (wafer.params[key] for key in ("P", "Mt", "Kt", "Nt"))
random = np.random.default_rng(16)
A = random.standard_normal((P * Mt, P * Kt)).astype(np.float32)
B = random.standard_normal((P * Kt, P * Nt)).astype(np.float32)


def tiles(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The tiles of a matrix, [P, P, elements], each column by column."""
    return matrix.reshape(P, rows, P, columns).transpose(0, 2, 3, 1).reshape(P, P, -1)


with wafer:
    wafer.put("A", tiles(A, Mt, Kt))
    wafer.put("B", tiles(B, Kt, Nt))
    wafer.call("multiply")
    C = wafer.get("C", (P, P, Mt * Nt))
C = C.reshape(P, P, Nt, Mt).transpose(0, 3, 1, 2).reshape(P * Mt, P * Nt)

check(C, A.astype(float) @ B, 1e-5 * P * Kt, picture=C, of="C")
