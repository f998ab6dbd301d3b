"""Fixtures for programs in CSL."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.csl.language.one_pe import OnePE


@pytest.fixture(params=["wse2", "wse3"])
def arch(request: pytest.FixtureRequest) -> str:
    """Each generation."""
    return str(request.param)


@pytest.fixture
def one(tmp_path: Path, arch: str) -> Callable[..., OnePE]:
    """Run a program of one PE on each generation: what is top-level, a line of ---, and what runs once."""

    def run(program: str, **given: Any) -> OnePE:
        text, body = program.split("\n---\n")
        return OnePE(tmp_path, text, body, arch, **given)

    return run
