"""A sparse linear layer as a user of SciPy or PyTorch would write it, with their CSR matrices.

Each has the transposed matrix for deltas as CSR, too, made beforehand. Of several ways to write a product all are
here, and the benchmark keeps the fastest. Neither has a product that computes the gradient of the non-zeros faster
than BLAS computes that of all weights, so that is among the ways: the dense product, read at the non-zeros.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

Ways = Mapping[str, Sequence[Callable[[], object]]]
"""for each product the ways to compute it"""


def scipy_ways(weight: np.ndarray, x: np.ndarray, delta_y: np.ndarray) -> Ways:
    """Return what SciPy does for the (T, in) and (T, out) of one lane.

    Args:
        weight: (out, in) float32, with its zeros
    """
    matrix, transposed = scipy.sparse.csr_array(weight), scipy.sparse.csr_array(weight.T)
    at = np.nonzero(weight)
    return {
        "forward": [lambda: (matrix @ x.T).T, lambda: x @ matrix.T],
        "delta": [lambda: (transposed @ delta_y.T).T, lambda: delta_y @ matrix],
        "gradient": [lambda: (delta_y.T @ x)[at]],
    }


def torch_ways(weight: np.ndarray, x: np.ndarray, delta_y: np.ndarray) -> Ways:
    """Return what PyTorch does for the tokens of all lanes together, in as many threads as it has been told."""
    import torch

    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
    given: tuple[Any, ...] = tuple(torch.from_numpy(array) for array in (weight, x, delta_y))
    dense, tokens, deltas = given
    matrix, transposed = dense.to_sparse_csr(), dense.T.contiguous().to_sparse_csr()
    rows, columns = dense.nonzero(as_tuple=True)
    return {
        "forward": [lambda: (matrix @ tokens.T).T],
        "delta": [lambda: (transposed @ deltas.T).T, lambda: deltas @ matrix],
        "gradient": [
            lambda: torch.sparse.sampled_addmm(matrix, deltas.T, tokens, beta=0.0),
            lambda: (deltas.T @ tokens)[rows, columns],
        ],
    }


def use_torch_threads(threads: int) -> None:
    """Tell PyTorch how many threads to take."""
    import torch

    torch.set_num_threads(threads)
