#!/usr/bin/env cs_python
"""A Fourier transform of a cube on a grid of PEs, beside NumPy.

Source: Orenes-Vera et al., Wafer-Scale Fast Fourier Transforms, arXiv 2209.15040

Published: 959 us for 512 x 512 x 512 complex numbers of 32 bits on 512 x 512 PEs of a CS-2 (Orenes-Vera et al. 2022)
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
n, width, height = (wafer.params[key] for key in ("n", "width", "height"))
random = np.random.default_rng(19)
z, y, x = np.ogrid[-n // 2 : n // 2, -n // 2 : n // 2, -n // 2 : n // 2]
cube = (np.sqrt(x * x + y * y + z * z) <= n / 4) + 0.1j * random.standard_normal((n, n, n))  # a ball and noise
cube = cube.astype(np.complex64)

# PE x, y has the pencils of z at its block of x and y; in the end it has pencils of y at its block of z and x.
parts = np.stack([cube.real, cube.imag]).reshape(2, n, height, n // height, width, n // width)  # c z Y y X x
with wafer:
    wafer.put("pencils", parts.transpose(2, 4, 1, 0, 3, 5).reshape(height, width, -1))
    wafer.call("run")
    result = wafer.get("result", (height, width, 2 * n**3 // (width * height)))
    cycles = wafer.cycles()
result = result.reshape(height, width, n, 2, n // height, n // width)  # X Z y c x z
result = result.transpose(3, 1, 5, 2, 0, 4).reshape(2, n, n, n)  # c z y x

expected = np.fft.fftn(cube.astype(complex))
check(
    result, np.stack([expected.real, expected.imag]), 1e-6 * np.abs(expected).max(),
    picture=np.fft.fftshift(np.hypot(*result)[0]), of="magnitude in the plane of kz = 0, zero in the middle",
    cycles=cycles, per="a transform",
)  # fmt: skip
