#!/usr/bin/env cs_python
"""Sparse y = A x in blocks on a grid of PEs, A banded and then irregular, beside SciPy.

Source: blocks on a grid: Hendrickson, Leland and Plimpton, An efficient parallel algorithm for matrix-vector
multiplication, 1995
"""

import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.append(str(Path(__file__).resolve().parents[1]))
import sparse_blocks
from host import Wafer, check

wafer = Wafer()
n = wafer.params["n"]
random = np.random.default_rng(21)
bands = [-n // 8, -1, 0, 1, n // 8]
banded = sp.diags([random.standard_normal(n - abs(k)) for k in bands], bands, shape=(n, n), dtype=np.float32).tocsr()
# Few rows have most of the elements, as nodes of many graphs have edges.
degrees = np.minimum(n // 4, np.ceil(n / (2 * np.arange(1, n + 1)))).astype(int)
rows = np.repeat(random.permutation(n), degrees)
columns = np.concatenate([random.choice(n, degree, replace=False) for degree in degrees])
weights = random.standard_normal(len(rows)).astype(np.float32)
irregular = sp.csr_matrix((weights, (rows, columns)), shape=(n, n))

x = random.standard_normal(n).astype(np.float32)
found, expected = [], []
with wafer:
    for A in (banded, irregular):
        sparse_blocks.put_matrix(wafer, A)
        found.append(sparse_blocks.multiply(wafer, x))
        expected.append(A.astype(np.float64) @ x)
    cycles = wafer.cycles()
check(
    np.array(found), np.array(expected), 1e-5, picture=irregular.toarray(), of="A, irregular",
    cycles=cycles, per=f"a product with {irregular.nnz} elements, irregular",
)  # fmt: skip
