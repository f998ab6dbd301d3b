"""How far a kernel may be from its slow twin, the one table."""

from collections.abc import Callable

import numpy as np

Scratch = Callable[[str, tuple[int, ...]], np.ndarray]

TOLERANCE = {
    # 24 bits give 6e-8 for one operation; the sums of the tests have a few hundred terms, whose errors mostly cancel,
    # and the polynomials of exp and the normal distribution add 2e-7.
    np.dtype(np.float32): 2e-6,
    # 53 bits give 1.1e-16 for one operation; the functions come from libm.
    np.dtype(np.float64): 1e-14,
}
"""largest error, as a share of the largest value of the expected array"""

FINITE_DIFFERENCE = 1e-6
"""float64, central, step 1e-5: the cut-off series leaves 1e-10 times the third derivative, rounding 1e-11"""

STEP = 1e-5


def assert_close(actual: np.ndarray, expected: np.ndarray, largest: float | None = None) -> None:
    """Compare an array with its float64 twin, by the twin's largest value unless another size is the natural one."""
    error = np.abs(actual - expected).max() / (np.abs(expected).max() if largest is None else largest)
    assert error <= TOLERANCE[actual.dtype], f"error {error:.1e}"


def assert_derivative(
    function: Callable[[np.ndarray], np.ndarray], at: np.ndarray, derivative: np.ndarray, delta_y: np.ndarray
) -> None:
    """Compare <derivative, v> with the slope of <delta_y, function> along a random direction v."""
    direction = np.random.default_rng(7).standard_normal(at.shape)
    ahead, behind = function(at + STEP * direction), function(at - STEP * direction)
    slope = np.sum(delta_y * (ahead - behind)) / (2 * STEP)
    expected = np.sum(derivative * direction)
    assert abs(slope - expected) <= FINITE_DIFFERENCE * abs(expected)
