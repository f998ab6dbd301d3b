#!/usr/bin/env cs_python
"""A Fourier transform of an image on a row of PEs, beside NumPy.

Source: Orenes-Vera et al., Wafer-Scale Fast Fourier Transforms, arXiv 2209.15040
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
n, width = wafer.params["n"], wafer.params["width"]
random = np.random.default_rng(18)
i, j = np.ogrid[-n // 2 : n // 2, -n // 2 : n // 2]
image = np.exp(2j * np.pi * random.random((n, n)) / 20) * (np.hypot(i, j) <= n / 6)  # light behind a round hole
image = image.astype(np.complex64)

columns = np.stack([image.real, image.imag], axis=1).reshape(n, 2, width, -1)
with wafer:
    wafer.put("pencils", columns.transpose(2, 0, 1, 3).reshape(1, width, -1))
    wafer.call("run")
    result = wafer.get("result", (1, width, 2 * n * n // width))
    cycles = wafer.cycles()
result = result.reshape(width, n, 2, -1).transpose(2, 0, 3, 1).reshape(2, n, n)

expected = np.fft.fft2(image.astype(complex))
check(
    result, np.stack([expected.real, expected.imag]), 1e-6 * np.abs(expected).max(),
    picture=np.fft.fftshift(np.hypot(*result)), of="magnitude by frequency, zero in the middle",
    cycles=cycles, per="a transform",
)  # fmt: skip
