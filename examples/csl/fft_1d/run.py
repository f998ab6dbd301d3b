#!/usr/bin/env cs_python
"""A Fourier transform of one long signal on a row of PEs, beside NumPy.

Source: Bailey, FFTs in external or hierarchical memory, 1990 (four steps)
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from host import Wafer, check

wafer = Wafer()
n, width = wafer.params["n"], wafer.params["width"]
N = n * n
random = np.random.default_rng(17)
time = np.arange(N) / N
tones = np.exp(2j * np.pi * (N // 5) * time) + 0.5 * np.cos(2 * np.pi * (N // 12) * time)
signal = (tones + 0.3 * random.standard_normal(N)).astype(np.complex64)


def on_pes(matrix: np.ndarray) -> np.ndarray:
    """Blocks of columns of [n, n] complex numbers, one for each PE: [1, width, n * 2 * columns] float32."""
    parts = np.stack([matrix.real, matrix.imag], axis=1).astype(np.float32)
    return parts.reshape(n, 2, width, -1).transpose(2, 0, 1, 3).reshape(1, width, -1)


turns = np.arange(n)[:, None] * np.arange(n) / N
with wafer:
    wafer.put("pencils", on_pes(signal.reshape(n, n)))
    wafer.put("phases", on_pes(np.exp(-2j * np.pi * turns)))
    wafer.call("run")
    result = wafer.get("result", (1, width, 2 * n * n // width))
    cycles = wafer.cycles()
result = result.reshape(width, n, 2, -1).transpose(2, 1, 0, 3).reshape(2, N)

expected = np.fft.fft(signal.astype(complex))
check(
    result, np.stack([expected.real, expected.imag]), 1e-6 * np.abs(expected).max(),
    picture=np.hypot(*result), of="magnitude by frequency",
    cycles=cycles, per="a transform",
)  # fmt: skip
