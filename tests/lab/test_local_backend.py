"""The local back end, with a real supervisor, keeps the contract of back ends."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cstool.jobs.appliance import drain_appliance
from tests.appliances import TestAppliance
from tests.job_contract import JobContract


class LocalOffer:
    """A local appliance."""

    def __init__(self, appliance: TestAppliance) -> None:
        self.jobs, self._root = appliance.jobs, appliance.root

    @contextmanager
    def held(self) -> Iterator[None]:
        """Drain it for a while."""
        drain_appliance(self._root)
        try:
            yield
        finally:
            drain_appliance(self._root, drained=False)


@pytest.fixture(scope="module")
def offer(tmp_path_factory) -> Iterator[LocalOffer]:
    with TestAppliance(tmp_path_factory.mktemp("root") / "appliance") as appliance:
        appliance.start()
        yield LocalOffer(appliance)


class TestLocal(JobContract):
    """The contract."""
