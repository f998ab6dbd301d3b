"""The examples of the formulas: they are run, and no module with formulas is without."""

import doctest
import importlib
import pkgutil

import pytest

import cstool.perf
from cstool import short_names, words
from cstool.estimation import adapters, bands, failures, limits, pareto, ranks, segments, unmet, variants
from cstool.kernels.sparse import pattern
from cstool.machine import swarmx

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(cstool.perf.__path__, f"{cstool.perf.__name__}.")
    if not found.ispkg and not found.name.endswith("gpu.step")
] + [short_names, words, adapters, bands, failures, limits, pareto, ranks, segments, unmet, variants, pattern, swarmx]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_are_right(module):
    outcome = doctest.testmod(module)
    assert outcome.failed == 0
    assert outcome.attempted
