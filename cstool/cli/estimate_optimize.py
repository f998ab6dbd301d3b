"""`cstool estimate optimize`: which cluster, batch and sparsity a job needs at least."""

from __future__ import annotations

from cstool.cli.options import ModelParamsOption


def optimize(params: ModelParamsOption = None) -> None:
    """Find the fewest systems, and the best batch, for a job with limits."""
    raise NotImplementedError
