#!/usr/bin/env cs_python
"""Conjugate gradients on a 7-point operator of random conductivities, beside SciPy.

Source: M. R. Hestenes and E. Stiefel, Methods of conjugate gradients for solving linear systems, 1952
"""

import sys
from pathlib import Path

import numpy as np
import scipy.sparse.linalg

sys.path.append(str(Path(__file__).resolve().parents[1]))
import seven_point
from host import Wafer, check

wafer = Wafer()
width, height, n, steps = (wafer.params[key] for key in ("width", "height", "n", "steps"))
coefficients = seven_point.coefficients((height, width, n), wind=0.0, seed=7)
b = np.random.default_rng(8).standard_normal((height, width, n)).astype(np.float32)

with wafer:
    wafer.put("coefficients", coefficients.reshape(height, width, 6 * n))
    wafer.put("r", b)
    wafer.call("run")
    x = wafer.get("x", (height, width, n))
    norms = wafer.get("norms", (height, width, steps + 1))
    cycles = wafer.cycles() / steps

A = seven_point.matrix(coefficients)
expected, _ = scipy.sparse.linalg.cg(A, b.ravel().astype(np.float64), rtol=0.0, maxiter=steps)
assert (norms == norms[0, 0]).all(), "the PEs disagree on the residual"
residual = np.linalg.norm(b.ravel() - A @ x.ravel())
np.testing.assert_allclose(np.sqrt(norms[0, 0, -1]), residual, rtol=0.05, atol=1e-5 * np.linalg.norm(b))
check(
    x.ravel(), expected, 2e-5 * np.abs(expected).max(),
    picture=np.log10(np.sqrt(norms[0, 0])), of="log10 of the residual, by iteration",
    cycles=cycles, per="an iteration",
)  # fmt: skip
