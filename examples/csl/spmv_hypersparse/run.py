#!/usr/bin/env cs_python
"""Sparse y = A x with most rows and columns of A empty, packed in blocks on a grid of PEs, beside SciPy.

Source: A. Buluc and J. R. Gilbert, On the representation and multiplication of hypersparse matrices, IPDPS 2008
"""

import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.append(str(Path(__file__).resolve().parents[1]))
import sparse_blocks
from host import Wafer, check

wafer = Wafer()
n, elements = wafer.params["n"], wafer.params["capacity"]
random = np.random.default_rng(22)
rows, columns = random.integers(0, n, elements), random.integers(0, n, elements)
A = sp.csr_matrix((random.standard_normal(elements).astype(np.float32), (rows, columns)), shape=(n, n))
x = random.standard_normal(n).astype(np.float32)
with wafer:
    sparse_blocks.put_matrix(wafer, A)
    y = sparse_blocks.multiply(wafer, x)
    cycles = wafer.cycles()
check(
    y, A.astype(np.float64) @ x, 1e-5, picture=y, of="y",
    cycles=cycles, per=f"a product with {A.nnz} elements in {n} rows",
)  # fmt: skip
