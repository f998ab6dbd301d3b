#!/usr/bin/env cs_python
"""The acoustic wave equation with a 25-point stencil in a medium of two layers, beside NumPy.

Source: Jacquelin, Araya-Polo and Meng, Scalable distributed high-order stencil computations, SC 2022, arXiv 2204.03775

Published: 503 TFLOP/s in 32 bits on 755 x 994 PEs of a CS-2 (Jacquelin et al.)
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

RADIUS = 4
wafer = Wafer()
width, height, n, steps = (wafer.params[key] for key in ("width", "height", "n", "steps"))
y, x, z = np.ogrid[:height, :width, :n]
distance = np.sqrt((x - (width - 1) / 2) ** 2 + (y - (height - 1) / 2) ** 2 + (z - (n - 1) / 2) ** 2)
pulse = np.exp(-((distance / 1.2) ** 2)).astype(np.float32)
speed = np.broadcast_to(np.where(z < n / 2, 0.22, 0.08), pulse.shape).astype(np.float32)  # below, and above

padded = np.zeros((height, width, 2, n + 2 * RADIUS), np.float32)
padded[:, :, :, RADIUS:-RADIUS] = pulse[:, :, None]  # it stood still before
with wafer:
    wafer.put("u", padded.reshape(height, width, -1))
    wafer.put("speed", speed)
    wafer.call("run")
    found = wafer.get("u", (height, width, padded[0, 0].size)).reshape(padded.shape)
    cycles = wafer.cycles() / steps
u = found[:, :, steps % 2, RADIUS:-RADIUS]

before, now = pulse.astype(np.float64), pulse.astype(np.float64)
inner = (slice(RADIUS, -RADIUS),) * 3
for _ in range(steps):
    around = np.pad(now, RADIUS)
    laplacian = 3 * -205 / 72 * now
    for axis in range(3):
        for k, weight in enumerate((8 / 5, -1 / 5, 8 / 315, -1 / 560), start=1):
            laplacian += weight * (np.roll(around, k, axis) + np.roll(around, -k, axis))[inner]
    before, now = now, 2 * now - before + speed * laplacian
check(
    u, now, 2e-6, picture=u[height // 2].T, of="the wave in the middle row of PEs, z upward", upward=True,
    cycles=cycles, per="a time step",
)  # fmt: skip
