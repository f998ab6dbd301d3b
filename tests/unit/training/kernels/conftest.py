"""Fixtures for tests of kernels."""

import numpy as np
import pytest

from tests.unit.training.kernels.tolerances import Scratch


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request) -> np.dtype:
    return np.dtype(request.param)


def lender(dtype: np.dtype) -> Scratch:
    """Return scratch memory of a dtype, full of NaN."""
    lent: dict[str, np.ndarray] = {}

    def lend(name: str, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape))
        if name not in lent or lent[name].size < size:
            lent[name] = np.empty(size, dtype)
        lent[name].fill(np.nan)  # nobody may rely on what scratch holds
        return lent[name][:size].reshape(shape)

    return lend


@pytest.fixture
def scratch(dtype) -> Scratch:
    """Scratch memory of the test's dtype, full of NaN."""
    return lender(dtype)


@pytest.fixture
def scratch32() -> Scratch:
    return lender(np.dtype(np.float32))


@pytest.fixture
def scratch64() -> Scratch:
    return lender(np.dtype(np.float64))
