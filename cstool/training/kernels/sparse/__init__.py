"""Sparse weights: the places of their non-zeros, and kernels that compute with these alone."""

from cstool.training.kernels.sparse.linear import (
    TILE_TOKENS,
    sparse_linear_delta,
    sparse_linear_forward,
    sparse_linear_gradient,
)
from cstool.training.kernels.sparse.matrix import KernelChoice, Lend, SparseMatrix
from cstool.training.kernels.sparse.pattern import (
    Pattern,
    collect,
    expand,
    make_pattern,
    pattern_bytes,
    positions,
    transpose_values,
)
