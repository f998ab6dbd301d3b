"""The Slurm back end, with a real Slurm, keeps the contract of back ends."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cstool.jobs.client import open_jobs
from tests.job_contract import JobContract, make, straight, text  # noqa: F401 fixtures
from tests.slurm import MISSING, Slurm, slurm

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"Slurm is not installed: there is no {', '.join(MISSING)}")


class SlurmOffer:
    """An appliance whose jobs a Slurm has."""

    def __init__(self, root: Path, cluster: Slurm) -> None:
        self.jobs, self._cluster = open_jobs(root, "slurm", makes=True), cluster

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the partition start nothing for a while."""
        self._cluster.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
        try:
            yield
        finally:
            self._cluster.ask("scontrol", "update", "PartitionName=main", "State=UP")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory(prefix="slurm.", dir="/tmp") as folder, slurm(Path(folder)) as found:
        before = {name: os.environ.get(name) for name in found.environment}
        os.environ.update(found.environment)
        try:
            yield found
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@pytest.fixture(scope="module")
def offer(tmp_path_factory, cluster) -> Iterator[SlurmOffer]:
    found = SlurmOffer(tmp_path_factory.mktemp("root") / "appliance", cluster)
    yield found
    found.jobs.close()


class TestSlurm(JobContract):
    """The contract."""
