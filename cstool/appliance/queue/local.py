"""The local back end: the supervisor of the appliance starts and ends jobs; it reads requests in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cstool.appliance.queue.backend import LOCAL
from cstool.appliance.queue.schedule import check_fits

if TYPE_CHECKING:
    from cstool.appliance.queue.job import Job, JobOrder
    from cstool.appliance.queue.job_folder import JobFolder
    from cstool.appliance.queue.queue import Queue
    from cstool.appliance.queue.root import Root


class LocalBackend:
    """Jobs on this host. See `Backend`."""

    name = LOCAL

    def __init__(self, root: Root, queue: Queue) -> None:
        self._root, self._queue = root, queue

    def check(self, order: JobOrder) -> None:
        """Check that the job ever fits, where the capacity of the appliance is known."""
        capacity = self._queue.capacity()
        if capacity is not None:
            check_fits(order.needs, capacity)

    def accept(self, job: Job, folder: JobFolder, order: JobOrder) -> str:  # noqa: ARG002
        """Do nothing: the supervisor finds the job in the queue."""
        return ""

    def refresh(self, jobs: Sequence[Job]) -> None:
        """Do nothing: the supervisor brings the queue up to date."""

    def stop(self, job: Job, what: str) -> None:
        """Do nothing: the supervisor finds the request in the queue."""
