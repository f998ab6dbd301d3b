"""Fixtures of the lab."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, open_browser
from tests.patience import wait_until
from tests.slurm import MISSING, Slurm, slurm
from tests.unit.cli.conftest import cstool  # noqa: F401


@pytest.fixture(scope="session")
def cluster() -> Iterator[Slurm]:
    """A Slurm with two nodes on this machine, for all tests of a worker; at the end nothing of their jobs is left."""
    if MISSING:
        pytest.skip(f"Slurm is not installed: there is no {', '.join(MISSING)}")
    with (
        tempfile.TemporaryDirectory(prefix="slurm.", dir="/tmp") as folder,
        slurm(Path(folder)) as found,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found
        wait_until(lambda: not found.jobs(), "jobs are left")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser without a window."""
    with open_browser() as found:
        yield found
