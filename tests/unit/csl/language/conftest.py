"""Fixtures for programs in CSL."""

from functools import partial
from pathlib import Path

import pytest

from tests.unit.csl.language.many_pes import One, OnePE


@pytest.fixture(params=["wse2", "wse3"])
def arch(request: pytest.FixtureRequest) -> str:
    """Each generation."""
    return str(request.param)


@pytest.fixture
def one(tmp_path: Path, arch: str) -> One:
    """Run a program of one PE on each generation: what is top-level, a line of ---, and what runs once."""
    return partial(OnePE, tmp_path, arch)


@pytest.fixture
def on_wse3(tmp_path: Path) -> One:
    """Likewise, on one generation."""
    return partial(OnePE, tmp_path, "wse3")
