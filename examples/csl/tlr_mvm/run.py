#!/usr/bin/env cs_python
"""A complex matrix of seismic waves in tiles of low rank, times a vector, beside NumPy.

Source: Ltaief et al., Scaling the Memory Wall for Multi-Dimensional Seismic Processing, SC23 (TLR-MVM)

Published: 92.58 PB/s of memory traffic on 48 CS-2, 35,784,000 PEs (Ltaief et al. 2023); 3.04 bytes a cycle and PE at
0.85 GHz
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
width, height, rows, columns, capacity = (
    wafer.params[key] for key in ("width", "height", "rows", "columns", "capacity")
)
ACCURACY = 1e-3  # of a tile, relative to its largest singular value

# A wave of one frequency from sources at the surface to receivers below: exp(i k r) / r.
sources, receivers = np.linspace(0, 8, width * columns), np.linspace(0, 8, height * rows)
distance = np.hypot(receivers[:, None] - sources, 1.0)
A = np.exp(1j * 2 * np.pi * distance) / distance
random = np.random.default_rng(20)
x = (random.standard_normal(A.shape[1]) + 1j * random.standard_normal(A.shape[1])).astype(np.complex64)

ranks = np.zeros((height, width, 1), np.uint16)
U = np.zeros((height, width, capacity, 2, rows), np.float32)
V = np.zeros((height, width, columns * 2 * capacity), np.float32)
compressed = np.zeros_like(A)
for i in range(height):
    for j in range(width):
        tile = np.s_[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        left, values, right = np.linalg.svd(A[tile], full_matrices=False)
        rank = ranks[i, j, 0] = np.count_nonzero(values > ACCURACY * values[0])
        assert rank <= capacity, f"tile {i}, {j} has rank {rank}"
        left, right = left[:, :rank].astype(np.complex64), (values[:rank, None] * right[:rank]).astype(np.complex64)
        U[i, j, :rank] = np.stack([left.real, left.imag]).transpose(2, 0, 1)
        V[i, j, : right.size * 2] = np.stack([right.real, right.imag]).transpose(2, 0, 1).ravel()
        compressed[tile] = left.astype(complex) @ right

with wafer:
    wafer.put("rank", ranks)
    wafer.put("U", U.reshape(height, width, -1))
    wafer.put("V", V)
    wafer.put("x", np.stack([x.real, x.imag], axis=1).reshape(1, width, -1))
    wafer.call("multiply")
    y = wafer.get("y", (height, 1, 2 * rows), at=(width - 1, 0))
    cycles = wafer.cycles()
y = y.reshape(height, 2, rows).transpose(1, 0, 2).reshape(2, -1)

dense, expected = A @ x, compressed @ x
assert np.linalg.norm(expected - dense) <= 2 * ACCURACY * np.linalg.norm(dense)
check(
    y, np.stack([expected.real, expected.imag]), 1e-5, picture=ranks[..., 0], of="rank of each tile",
    cycles=cycles, per="a product",
)  # fmt: skip
