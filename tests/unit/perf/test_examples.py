"""The examples of the formulas: they are run, and no module with formulas is without."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import cstool.perf

MODULES = [
    importlib.import_module(f"{cstool.perf.__name__}.{found.name}")
    for found in pkgutil.iter_modules(cstool.perf.__path__)
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_are_right(module: ModuleType) -> None:
    outcome = doctest.testmod(module)
    assert outcome.failed == 0
    assert outcome.attempted
