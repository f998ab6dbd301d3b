"""The 7-point operator of cg_7 and bicgstab_7 on the host: coefficients for the PEs, and a matrix for SciPy."""

import numpy as np
import scipy.sparse as sp

STEPS = [(0, 0, -1), (0, 0, 1), (0, -1, 0), (0, 1, 0), (-1, 0, 0), (1, 0, 0)]
"""the neighbours below, above, west, east, north, south: steps along y, x, z"""


def coefficients(shape: tuple[int, int, int], wind: float, seed: int) -> np.ndarray:
    """Coefficients of flow through a medium of random conductivity, the diagonal scaled to 1.

    Args:
        shape: points along y, x, z
        wind: of an upwind term toward the east; with 0 the operator is symmetric
        seed: of the conductivities

    Returns:
        [y, x, 6, z] float32
    """
    sizes = np.array(shape)
    conductivity = np.exp(np.random.default_rng(seed).standard_normal(sizes + 2))
    here = conductivity[1:-1, 1:-1, 1:-1]
    links = []
    for step in STEPS:
        there = conductivity[tuple(slice(1 + d, 1 + d + size) for d, size in zip(step, shape, strict=True))]
        links.append(2 * here * there / (here + there))
    links[2] += wind
    diagonal = sum(links)
    found = np.zeros((*shape[:2], 6, shape[2]), np.float32)
    for side, (step, link) in enumerate(zip(STEPS, links, strict=True)):
        # Both sides are scaled by the root of the diagonal, so that a symmetric operator stays one.
        beyond = np.pad(diagonal, 1, constant_values=np.inf)
        there = beyond[tuple(slice(1 + d, 1 + d + size) for d, size in zip(step, shape, strict=True))]
        found[:, :, side] = -link / np.sqrt(diagonal * there)
    return found


def matrix(found: np.ndarray) -> sp.csr_matrix:
    """The operator of these coefficients as a matrix of float64, points in the order y, x, z."""
    height, width, _, n = found.shape
    numbers = np.arange(height * width * n).reshape(height, width, n)
    rows, columns, values = [numbers.ravel()], [numbers.ravel()], [np.ones(numbers.size)]
    padded = np.pad(numbers, 1, constant_values=-1)
    for side, step in enumerate(STEPS):
        there = padded[tuple(slice(1 + d, 1 + d + size) for d, size in zip(step, numbers.shape, strict=True))]
        inside = there >= 0
        rows.append(numbers[inside])
        columns.append(there[inside])
        values.append(found[:, :, side][inside].astype(np.float64))
    return sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))))
