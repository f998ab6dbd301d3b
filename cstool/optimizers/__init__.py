"""Optimizers: a module for each, with its state, its update and what that costs."""

from cstool.optimizers.base import (
    Optimizer,
    Step,
    WholeOptimizer,
    compile_updates,
    costed_optimizer,
    forms,
    make_optimizer,
    state_numbers,
    state_share,
    whole_arrays,
)

__all__ = [
    "Optimizer",
    "Step",
    "WholeOptimizer",
    "compile_updates",
    "costed_optimizer",
    "forms",
    "make_optimizer",
    "state_numbers",
    "state_share",
    "whole_arrays",
]
