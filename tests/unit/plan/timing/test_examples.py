"""The examples of the formulas: they are run, and no module with formulas is without."""

import doctest
import importlib
import pkgutil

import pytest

import cstool.plan.timing
from cstool.foundation import words
from cstool.model import short_names
from cstool.model.graphs import adapters
from cstool.model.params.sections import tuning
from cstool.plan.estimation import bands, failures, limits, plan, unmet
from cstool.training.host import rank_flags as ranks
from cstool.training.kernels.sparse import pattern
from cstool.training.machine import swarmx

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(cstool.plan.timing.__path__, f"{cstool.plan.timing.__name__}.")
    if not found.ispkg and not found.name.endswith(("gpu.step", "resources"))
] + [short_names, words, adapters, bands, failures, limits, plan, ranks, tuning, unmet, pattern, swarmx]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_are_right(module):
    outcome = doctest.testmod(module)
    assert outcome.failed == 0
    assert outcome.attempted
